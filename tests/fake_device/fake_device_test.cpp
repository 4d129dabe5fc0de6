// The fake device is as asynchronous as a real one: threads, streams, memory, copies and captures.
#include "fake_device/fixture.h"

#include <ATen/core/CachingHostAllocator.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>

#include <deque>
#include <functional>
#include <set>
#include <thread>
#include <utility>
#include <vector>

namespace ttrace::testing::fake {
namespace {

// ---- threads and errors ----

TEST_F(FakeDeviceTest, RunsBackwardHooksOnAThreadOfItsOwn) {
  const at::Tensor x = at::ones({2}, device()).requires_grad_();
  std::thread::id thread;
  const at::Tensor y = x * 2;
  y.register_hook([&](const at::Tensor&) { thread = std::this_thread::get_id(); });
  y.sum().backward();
  EXPECT_NE(thread, std::thread::id());
  EXPECT_NE(thread, std::this_thread::get_id());
  EXPECT_TRUE(same_bits(x.grad(), at::full({2}, 2.0F)));
}

TEST_F(FakeDeviceTest, ServesAThreadThatWaitsForCopies) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    reset(seed);
    std::deque<c10::Event> copied;
    std::vector<at::Tensor> landings;
    at::Tensor x = at::zeros({3}, device());
    for (int turn = 0; turn < 20; ++turn) {
      x.add_(1);
      landings.push_back(x.to(at::kCPU, /*non_blocking=*/true));
      copied.emplace_back(kType).record(default_stream());
    }
    std::thread writer([&] {
      for (std::size_t turn = 0; turn < copied.size(); ++turn) {
        copied[turn].synchronize();
        EXPECT_EQ(landings[turn][0].item<float>(), static_cast<float>(turn + 1));
      }
    });
    for (int turn = 0; turn < 20; ++turn) {
      x = x * 2;
    }
    EXPECT_EQ(x[0].item<float>(), 20 * 1048576.0F);
    writer.join();
  }
}

TEST_F(FakeDeviceTest, ThrowsAnErrorOfAKernelAtTheNextWait) {
  const at::Tensor x = at::ones({2}, device());
  const at::Tensor picked = x.index_select(0, at::full({1}, 7, x.options().dtype(at::kLong)));
  EXPECT_THROW(default_stream().synchronize(), c10::Error);
  default_stream().synchronize();
}

TEST_F(FakeDeviceTest, RefusesTensorsOfAnotherDevice) {
  const at::Tensor x = at::ones({2}, device());
  EXPECT_THROW(x.add(at::ones({2})), c10::Error);
  EXPECT_THROW(x.add(at::ones({2}, device(1))), c10::Error);
  EXPECT_TRUE(same_bits(x.to(device(1)).add(at::ones({2}, device(1))), at::full({2}, 2.0F)));
}

// ---- streams ----

// A kernel on `stream` overwrites x by ones; the default stream reads x.
float read_beside(std::uint64_t seed, bool with_event) {
  reset(seed);
  const c10::Stream side = new_stream();
  const at::Tensor x = at::zeros({}, device());
  c10::Event before(kType);
  c10::Event after(kType);
  before.record(default_stream());
  before.block(side);
  {
    const c10::StreamGuard guard(side);
    x.fill_(1);
    after.record(side);
  }
  if (with_event) {
    after.block(default_stream());
  }
  return x.clone().item<float>();
}

TEST_F(FakeDeviceTest, ReadsAnOldValueOnlyWithoutAnEvent) {
  std::set<float> with_event;
  std::set<float> without;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    with_event.insert(read_beside(seed, true));
    without.insert(read_beside(seed, false));
  }
  EXPECT_EQ(with_event, std::set<float>{1});
  EXPECT_EQ(without, (std::set<float>{0, 1}));
}

TEST_F(FakeDeviceTest, ReusesMemoryAtOnceInTheOrderOfTheStream) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    reset(seed);
    at::Tensor x = at::full({100}, 1.0F, device());
    const void* const address = x.const_data_ptr();
    const at::Tensor doubled = x * 2;
    x.reset();
    const at::Tensor y = at::full({100}, 5.0F, device());
    EXPECT_EQ(y.const_data_ptr(), address);
    ASSERT_TRUE(same_bits(doubled, at::full({100}, 2.0F)));
    ASSERT_TRUE(same_bits(y, at::full({100}, 5.0F)));
  }
}

// A side stream reads memory that the host frees meanwhile. Returns how many seeds read it wrong.
int wrong_reads(bool recorded) {
  int wrong = 0;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    reset(seed);
    const c10::Stream side = new_stream();
    const at::Tensor copy = at::zeros({100}, device());
    at::Tensor x = at::full({100}, 1.0F, device());
    c10::Event made(kType);
    made.record(default_stream());
    made.block(side);
    {
      const c10::StreamGuard guard(side);
      copy.copy_(x);
    }
    if (recorded) {
      x.record_stream(side);
    }
    x.reset();
    const at::Tensor other = at::full({100}, 5.0F, device());
    c10::Event copied(kType);
    copied.record(side);
    copied.synchronize();
    wrong += same_bits(copy, at::full({100}, 1.0F)) ? 0 : 1;
  }
  return wrong;
}

TEST_F(FakeDeviceTest, DelaysReuseForARecordedStream) {
  EXPECT_GT(wrong_reads(false), 0);
  EXPECT_EQ(wrong_reads(true), 0);
}

TEST_F(FakeDeviceTest, PoisonsMemoryUnlessToldNotTo) {
  at::Tensor x = at::full({4}, 1.0F, device());
  x.reset();
  EXPECT_TRUE(at::empty({4}, device()).to(at::kCPU).isnan().all().item<bool>());
  set_poison(false);
  x = at::full({4}, 1.0F, device());
  x.reset();
  EXPECT_TRUE(same_bits(at::empty({4}, device()), at::full({4}, 1.0F)));
}

TEST_F(FakeDeviceTest, DeadlocksOnlyWhereTheWaitNeedsTheGate) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    reset(seed);
    const c10::Stream side = new_stream();
    const at::Tensor received = at::zeros({2}, device());
    default_stream().synchronize();
    const SignalRef gate = post_gate(side, "receive");
    launch(side, "receive", [data = received.mutable_data_ptr<float>()] { data[0] = 1; });
    EXPECT_TRUE(same_bits(received + 1, at::ones({2})));
    EXPECT_THROW(c10::impl::getDeviceGuardImpl(kType)->synchronizeDevice(0), Deadlock);
    open(gate);
    c10::impl::getDeviceGuardImpl(kType)->synchronizeDevice(0);
    EXPECT_TRUE(same_bits(received, at::tensor({1.0F, 0.0F})));
  }
}

// ---- copies ----

TEST_F(FakeDeviceTest, CopiesToPinnedMemoryWithoutWaiting) {
  reset(0, Policy::kLazy);
  const at::Tensor x = at::full({3}, 4.0F, device());
  at::Tensor landing = at::zeros({3}, at::TensorOptions().pinned_memory(true));
  ASSERT_TRUE(landing.is_pinned());
  landing.copy_(x, /*non_blocking=*/true);
  c10::Event landed(kType);
  landed.record(default_stream());
  EXPECT_EQ(landing[0].item<float>(), 0);
  EXPECT_FALSE(landed.query());
  EXPECT_EQ(counters().stream_waits, 0U);
  // Freed too early, it is not handed out before the copy is done.
  const void* const address = landing.const_data_ptr();
  const at::Tensor view = at::from_blob(landing.mutable_data_ptr(), {3});
  landing.reset();
  EXPECT_NE(at::getHostAllocator(kType)->allocate(12).get(), address);
  landed.synchronize();
  EXPECT_EQ(view[0].item<float>(), 4);
  default_stream().synchronize();
  EXPECT_EQ(at::getHostAllocator(kType)->allocate(12).get(), address);
}

TEST_F(FakeDeviceTest, ReadsPinnedMemoryWhenItsTurnComes) {
  reset(0, Policy::kLazy);
  at::Tensor pinned = at::ones({3}, at::TensorOptions().pinned_memory(true));
  at::Tensor pageable = at::ones({3});
  const at::Tensor from_pinned = pinned.to(device(), true);
  const at::Tensor from_pageable = pageable.to(device(), true);
  pinned.fill_(2);
  pageable.fill_(2);
  EXPECT_TRUE(same_bits(from_pinned, at::full({3}, 2.0F)));
  EXPECT_TRUE(same_bits(from_pageable, at::ones({3})));
}

TEST_F(FakeDeviceTest, CountsCopiesAndWaits) {
  const at::Tensor x = at::ones({4}).to(device());  // waits
  const at::Tensor y = at::empty({2, 2}, device());
  y.copy_(x.view({2, 2}));
  const at::Tensor columns = y.t().to(at::kCPU);        // packs the columns on the device, waits
  EXPECT_EQ(columns.numel() + y.sum().item<int>(), 8);  // waits
  c10::impl::getDeviceGuardImpl(kType)->synchronizeDevice(1);
  c10::Event event(kType);
  event.record(default_stream());
  event.synchronize();
  const Counters seen = counters();
  EXPECT_EQ(seen.write_copies, 1U);
  EXPECT_EQ(seen.write_bytes, 16U);
  EXPECT_EQ(seen.device_copies, 2U);
  EXPECT_EQ(seen.device_bytes, 32U);
  EXPECT_EQ(seen.read_copies, 2U);
  EXPECT_EQ(seen.read_bytes, 20U);
  EXPECT_EQ(seen.stream_waits, 3U);
  EXPECT_EQ(seen.device_waits, 1U);
  EXPECT_EQ(seen.event_waits, 1U);
  EXPECT_EQ(seen.other_waits, 0U);
}

TEST_F(FakeDeviceTest, ResizesStorages) {
  at::Tensor x = at::arange(4, at::TensorOptions(device()).dtype(at::kFloat));
  x.resize_({6});
  EXPECT_TRUE(same_bits(x.slice(0, 0, 4), at::arange(4, at::kFloat)));
  const std::size_t in_use = memory().in_use;
  at::detail::getPrivateUse1Hooks().resizePrivateUse1Bytes(x.storage(), 0);
  EXPECT_EQ(memory().in_use, in_use - 24);
  x.set_();
  EXPECT_EQ(x.numel(), 0);
}

// ---- capture ----

TEST_F(FakeDeviceTest, CapturesAndReplays) {
  const at::Tensor x = at::ones({2}, device());
  at::Tensor sum = at::zeros({2}, device());
  default_stream().synchronize();
  const c10::Stream side = new_stream();
  begin_capture(side);
  {
    const c10::StreamGuard guard(side);
    EXPECT_TRUE(c10::impl::getDeviceGuardImpl(kType)->isStreamCapturing(side));
    sum.add_(x * 3);
  }
  const Graph graph = end_capture(side);
  replay(graph, default_stream());
  x.fill_(2);
  replay(graph, default_stream());
  EXPECT_TRUE(same_bits(sum, at::full({2}, 9.0F)));
}

TEST_F(FakeDeviceTest, BreaksACaptureByAnyWait) {
  const at::Tensor x = at::ones({2}, device());
  c10::Event event(kType);
  event.record(default_stream());
  default_stream().synchronize();
  const c10::Stream side = new_stream();
  const std::vector<std::function<void()>> waits = {
      [&] { x.to(at::kCPU); },
      [&] { x.copy_(at::zeros({2})); },
      [&] { x.sum().item(); },
      [&] { at::nonzero(x); },
      [&] { event.synchronize(); },
      [&] { side.synchronize(); },
      [&] { c10::impl::getDeviceGuardImpl(kType)->synchronizeDevice(0); }};
  for (const auto& wait : waits) {
    begin_capture(side);
    {
      const c10::StreamGuard guard(side);
      EXPECT_THROW(wait(), CaptureError);
    }
    EXPECT_THROW((void)end_capture(side), CaptureError);
  }
}

}  // namespace
}  // namespace ttrace::testing::fake
