// Tensors that lie on an accelerator, whose work goes on while the host does something else.
#include "fake_device/fixture.h"
#include "hooks/training.h"

#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace ttrace::testing {
namespace {

using fake::Deadlock;
using fake::FakeDeviceTest;
using fake::kType;
using fake::SignalRef;

at::Tensor on_device(const at::Tensor& values) {
  return values.to(fake::device());
}

// Overwrites a device tensor on a stream that is not the current one. The event is that of the end.
c10::Event overwrite_later(const at::Tensor& tensor, const at::Tensor& values) {
  const c10::Stream side = fake::new_stream();
  c10::Event before(kType);
  before.record(fake::default_stream());
  before.block(side);
  fake::launch(side, "overwrite", [target = tensor.mutable_data_ptr(), values] {
    std::memcpy(target, values.const_data_ptr(), values.nbytes());
  });
  c10::Event after(kType);
  after.record(side);
  return after;
}

// What a traced step records of a tensor that another stream overwrites.
at::Tensor captured_beside(std::uint64_t seed, bool with_event, const std::string& sync) {
  fake::reset(seed);
  const at::Tensor old = random_tensor({3, 5}, 1);
  const at::Tensor fresh = random_tensor({3, 5}, 2);
  const at::Tensor gradient = on_device(old);
  Holder root;
  const Captured captured = trace_step(root,
                                       [&](Step& step) {
                                         const c10::Event overwritten =
                                             overwrite_later(gradient, fresh);
                                         if (with_event) {
                                           overwritten.block(fake::default_stream());
                                         }
                                         step.gradients_reduced({{"weight", gradient}});
                                         overwritten.synchronize();
                                       },
                                       {},
                                       {{"TTRACE_SYNC", sync}, {"TTRACE_RING_BYTES", "20000"}});
  EXPECT_EQ(fake::counters().device_waits, 0U);
  const at::Tensor result = captured.tensor("s0/main_grad/weight/0");
  EXPECT_TRUE(at::equal(result, old) || at::equal(result, fresh)) << result;
  return result;
}

// Symptom: a missing wait for a communication stream could not be seen, because every hook waited
// for all streams of the device first.
TEST_F(FakeDeviceTest, ATensorIsRecordedAsTheCurrentStreamReadsIt) {
  const at::Tensor fresh = random_tensor({3, 5}, 2);
  for (const std::string sync : {"async", "stream"}) {
    int fresh_without_event = 0;
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
      EXPECT_SAME(captured_beside(seed, true, sync), fresh);
      fresh_without_event += at::equal(captured_beside(seed, false, sync), fresh) ? 1 : 0;
    }
    EXPECT_GT(fresh_without_event, 0) << "the event is missing, not the work";
    EXPECT_LT(fresh_without_event, 20) << "something waited for the other stream";
  }
}

TEST_F(FakeDeviceTest, ParametersAreFilledAfterTheWorkThatWritesToThem) {
  const at::Tensor parameter = on_device(random_tensor({4, 6}, 3));
  const at::Tensor expected = at::empty({4, 6});
  static_cast<void>(overwrite_later(parameter, random_tensor({4, 6}, 4)));
  fill_parameters({{"weight", parameter}}, Layout(), Annotations(), 1);
  fill_parameters({{"weight", expected}}, Layout(), Annotations(), 1);
  EXPECT_TRUE(fake::executor().idle());
  EXPECT_SAME(parameter.to(at::kCPU), expected);
}

TEST_F(FakeDeviceTest, ParametersStartFromTheReferences) {
  const TemporaryDirectory directory;
  const at::Tensor expected = random_tensor({4, 6}, 5);
  const auto attach = [&](Session& session, const at::Tensor& parameter) {
    session.attach({{"weight", parameter}}, {}, Layout(), Annotations());
    return session.load_parameters();
  };
  {
    const PassEnvironment environment(reference_pass(directory / "reference"));
    auto session = Session::from_environment();
    const at::Tensor parameter = on_device(random_tensor({4, 6}, 7));
    static_cast<void>(overwrite_later(parameter, expected));
    attach(session, parameter);
  }
  const at::Tensor parameter = on_device(random_tensor({4, 6}, 6));
  const PassEnvironment environment(
      candidate_pass(directory / "candidate", directory / "reference"));
  auto session = Session::from_environment();
  EXPECT_EQ(attach(session, parameter), std::vector<std::string>{"weight"});
  EXPECT_SAME(parameter.to(at::kCPU), expected);
}

// ---- receives that are posted ahead ----

// A stage of a pipeline that posts the receive of the next micro-batch before it computes the
// current one. The peer sends only when it has got this stage's result.
class Stage {
 public:
  static constexpr int kMicrobatches = 4;

  // Calls record(microbatch, name, tensor) for what is received and what is computed.
  using RecordValue = std::function<void(Microbatch&, const std::string&, const at::Tensor&)>;
  void run(Step& step, const RecordValue& record) {
    fake::open(post_receive(0));
    for (std::size_t number = 0; number < kMicrobatches; ++number) {
      arrived_[number].block(fake::default_stream());
      std::optional<SignalRef> next;
      if (number + 1 < kMicrobatches) {
        next = post_receive(number + 1);  // the peer has not sent yet
      }
      auto microbatch = step.microbatch(static_cast<std::int64_t>(number));
      record(microbatch, "received", buffers_[number]);
      const at::Tensor y = buffers_[number] * 2 + 1;
      record(microbatch, "computed", y);
      y.add_(1);  // overwritten right after
      if (next) {
        fake::open(*next);  // our result is sent, and the peer answers
      }
    }
  }

 private:
  SignalRef post_receive(std::size_t number) {
    buffers_.push_back(at::zeros({7}, fake::device()));
    c10::Event made(kType);
    made.record(fake::default_stream());
    made.block(comm_);
    SignalRef gate = fake::post_gate(comm_, "receive " + std::to_string(number));
    fake::launch(comm_, "receive", [data = buffers_.back().mutable_data_ptr<float>(), number] {
      std::fill_n(data, 7, static_cast<float>(number + 10));
    });
    arrived_.emplace_back(kType).record(comm_);
    return gate;
  }

  const c10::Stream comm_ = fake::new_stream();
  std::vector<at::Tensor> buffers_;
  std::vector<c10::Event> arrived_;
};

TEST_F(FakeDeviceTest, ReceivesThatArePostedAheadDeadlockWithWaitsForTheDevice) {
  Holder root;
  trace_step(root, [&](Step& step) {
    const auto wait = [](Microbatch&, const std::string&, const at::Tensor&) {
      c10::impl::getDeviceGuardImpl(kType)->synchronizeDevice(0);
    };
    EXPECT_THROW(Stage().run(step, wait), Deadlock);
    fake::reset();
  });
}

TEST_F(FakeDeviceTest, ReceivesThatArePostedAheadCompleteUnderATrace) {
  for (const std::string sync : {"async", "stream"}) {
    for (const auto policy : {fake::Policy::kSeeded, fake::Policy::kLazy, fake::Policy::kEager}) {
      fake::reset(3, policy);
      Holder root;
      const Captured captured = trace_step(
          root,
          [](Step& step) {
            Stage().run(
                step,
                [](Microbatch& microbatch, const std::string& name, const at::Tensor& tensor) {
                  microbatch.data(name, tensor);
                });
          },
          {},
          {{"TTRACE_SYNC", sync}, {"TTRACE_RING_BYTES", "20000"}, {"TTRACE_ON_ERROR", "raise"}});
      for (int number = 0; number < Stage::kMicrobatches; ++number) {
        const std::string prefix = "s0/m" + std::to_string(number) + "/data/";
        const at::Tensor received = at::full({7}, static_cast<float>(number + 10));
        EXPECT_SAME(captured.tensor(prefix + "received/0"), received);
        EXPECT_SAME(captured.tensor(prefix + "computed/0"), received * 2 + 1);
      }
      EXPECT_EQ(fake::counters().device_waits, 0U);
    }
  }
}

}  // namespace
}  // namespace ttrace::testing
