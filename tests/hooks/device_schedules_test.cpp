// A thousand schedules: whatever streams, events, reuse of memory and the order of the device's
// work, a record holds what the current stream reads where the hook is.
#include "fake_device/fixture.h"
#include "hooks/training.h"

#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>

#include <algorithm>
#include <iostream>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

namespace ttrace::testing {
namespace {

using fake::FakeDeviceTest;
using fake::kType;
using fake::SignalRef;

// Bytes of a tensor, read by a kernel of the test's own in the order of the current stream.
using Witness = std::shared_ptr<std::vector<std::byte>>;

Witness witness(const at::Tensor& tensor) {
  auto bytes = std::make_shared<std::vector<std::byte>>(tensor.nbytes());
  fake::launch(
      c10::impl::getDeviceGuardImpl(kType)->getStream(tensor.device()),
      "witness",
      [bytes, from = tensor.const_data_ptr()] { std::memcpy(bytes->data(), from, bytes->size()); });
  return bytes;
}

// One record, with what the stream read right before and right after.
struct Expectation {
  std::string id;
  Witness before, after;
  at::Tensor written;  // what the last write gives
  bool exact = true;   // events leave no choice: it is that
};

struct Tally {
  int records = 0;
  int exact = 0;
  int racing = 0;        // of tensors that another stream wrote to without an event
  int racing_old = 0;    // of those, from before the write
  int racing_fresh = 0;  // from after it
};

// A random program on three streams.
class Program {
 public:
  Program(int seed, Step& step)
      : random_(static_cast<std::uint64_t>(seed)),
        number_(seed),
        microbatch_(step.microbatch(seed)) {
    for (int slot = 0; slot < 3; ++slot) {
      renew(tensors_.emplace_back());
    }
  }

  void run(int actions) {
    for (int action = 0; action < actions; ++action) {
      act();
    }
    for (const SignalRef& gate : gates_) {
      fake::open(gate);
    }
    join(side_, main_);
    join(comm_, main_);
    microbatch_.reset();
    EXPECT_EQ(fake::counters().device_waits, 0U);
  }

  // `captured`: the step, read back.
  void check(const Captured& captured, Tally& tally) const {
    for (const Expectation& item : expected_) {
      const at::Tensor result = captured.tensor(item.id);
      ++tally.records;
      if (item.exact) {
        ++tally.exact;
        EXPECT_TRUE(fake::same_bits(result, item.written)) << item.id;
        continue;
      }
      ++tally.racing;
      // Pieces of a large tensor are read one after the other.
      const at::Tensor old = like(result, *item.before);
      const at::Tensor later = like(result, *item.after);
      EXPECT_TRUE(result.eq(old).logical_or(result.eq(later)).all().item<bool>()) << item.id;
      const bool fresh = fake::same_bits(result, item.written);
      tally.racing_fresh += fresh ? 1 : 0;
      tally.racing_old += fresh ? 0 : 1;
    }
  }

 private:
  struct Value {
    at::Tensor device;  // contiguous [rows, columns]
    at::Tensor expected;
    bool racing = false;  // another stream writes to it, and nothing waits for that
  };

  static at::Tensor like(const at::Tensor& tensor, const std::vector<std::byte>& bytes) {
    const at::Tensor result = at::empty_like(tensor);
    std::memcpy(result.mutable_data_ptr(), bytes.data(), bytes.size());
    return result;
  }
  std::int64_t draw(std::int64_t below) {
    return static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(below));
  }
  static void join(const c10::Stream& from, const c10::Stream& to) {
    c10::Event event(kType);
    event.record(from);
    event.block(to);
  }

  // The old memory is free at once, and the next tensor of its size gets it.
  void renew(Value& value) {
    settle(value);
    const std::int64_t rows = kSizes[static_cast<std::size_t>(draw(std::ssize(kSizes)))];
    value.device.reset();
    value.expected = at::empty({rows, 7});
    value.device = at::empty({rows, 7}, fake::device());
    overwrite(value);
  }
  void overwrite(Value& value) {
    settle(value);
    const auto number = static_cast<float>(++writes_);
    value.expected.fill_(number);
    value.expected[0].add_(1);
    value.device.fill_(number);
    value.device[0].add_(1);
  }
  // Whoever writes to it is done for all that the main stream does from here on.
  void settle(Value& value) {
    if (std::exchange(value.racing, false)) {
      join(side_, main_);
    }
  }
  void write_beside(Value& value, bool with_event) {
    settle(value);
    join(main_, side_);
    const auto number = static_cast<float>(++writes_);
    {
      const c10::StreamGuard guard(side_);
      value.device.fill_(number);
    }
    value.expected.fill_(number);
    value.racing = true;
    if (with_event) {
      settle(value);
    }
  }
  // As sharded training frees parameters between their uses: the tensor stays, its memory goes.
  void drop_memory(Value& value) {
    settle(value);
    const auto& hooks = at::detail::getPrivateUse1Hooks();
    const std::size_t bytes = value.device.nbytes();
    hooks.resizePrivateUse1Bytes(value.device.storage(), 0);
    const at::Tensor other = at::full(value.device.sizes(), -1.0F, fake::device());
    hooks.resizePrivateUse1Bytes(value.device.storage(), bytes);
    overwrite(value);
  }
  // Its end is opened when the program has gone on.
  void post_receive() { gates_.push_back(fake::post_gate(comm_, "receive")); }

  void record(Value& value) {
    Expectation item;
    const std::string name = "t" + std::to_string(expected_.size());
    item.id = "s0/m" + std::to_string(number_) + "/data/" + name + "/0";
    item.before = witness(value.device);
    const bool turned = !value.racing && draw(3) == 0;
    microbatch_->data(name, turned ? value.device.t() : value.device);
    item.after = witness(value.device);
    item.written = (turned ? value.expected.t() : value.expected).clone();
    item.exact = !value.racing;
    expected_.push_back(std::move(item));
  }
  // The side stream reads what the main stream made.
  void record_beside(Value& value) {
    settle(value);
    join(main_, side_);
    {
      const c10::StreamGuard guard(side_);
      record(value);
    }
    join(side_, main_);
  }

  void act() {
    Value& value = tensors_[static_cast<std::size_t>(draw(std::ssize(tensors_)))];
    switch (draw(9)) {
      case 0:
        return renew(value);
      case 1:
        return overwrite(value);
      case 2:
        return write_beside(value, true);
      case 3:
        return write_beside(value, false);
      case 4:
        return drop_memory(value);
      case 5:
        return post_receive();
      case 6:
        return record_beside(value);
      default:
        record(value);
        if (draw(2) == 0 && !value.racing) {
          value.device.add_(1);  // overwritten right after
          value.expected.add_(1);
        }
    }
  }

  static inline const std::vector<std::int64_t> kSizes = {1, 5, 17, 40, 300};
  std::mt19937_64 random_;
  const int number_;  // of the micro-batch
  std::optional<Microbatch> microbatch_;
  const c10::Stream main_ = fake::default_stream();
  const c10::Stream side_ = fake::new_stream();
  const c10::Stream comm_ = fake::new_stream();
  std::vector<Value> tensors_;
  std::vector<SignalRef> gates_;
  std::vector<Expectation> expected_;
  int writes_ = 0;
};

// Schedules `first` to `last` as the micro-batches of one traced step: a file for each of them
// would take the disk longer than all else takes.
void run_schedules(int first, int last, const std::string& ring, Tally& tally) {
  Holder root;
  std::vector<std::unique_ptr<Program>> programs;
  const Captured captured =
      trace_step(root,
                 [&](Step& step) {
                   for (int seed = first; seed < last; ++seed) {
                     SCOPED_TRACE("seed " + std::to_string(seed));
                     fake::reset(static_cast<std::uint64_t>(seed),
                                 seed % 10 == 8   ? fake::Policy::kLazy
                                 : seed % 10 == 9 ? fake::Policy::kEager
                                                  : fake::Policy::kSeeded);
                     programs.push_back(std::make_unique<Program>(seed, step));
                     programs.back()->run(30);
                     fake::executor().wait_device(0);  // the next reset drops what is pending
                   }
                 },
                 {},
                 {{"TTRACE_RING_BYTES", ring}, {"TTRACE_ON_ERROR", "raise"}});
  for (const auto& program : programs) {
    program->check(captured, tally);
  }
}

TEST_F(FakeDeviceTest, AThousandSchedulesAreRecordedAsTheCurrentStreamReadsThem) {
  Tally tally;
  const std::vector<std::string> rings = {"4096", "5000", "9000", "20000", "300000"};
  for (int first = 0; first < 1000; first += 100) {
    run_schedules(
        first, first + 100, rings[static_cast<std::size_t>(first / 100) % rings.size()], tally);
    if (HasFailure()) {
      return;
    }
  }
  RecordProperty("records", tally.records);
  RecordProperty("exact", tally.exact);
  RecordProperty("racing", tally.racing);
  RecordProperty("racing_old", tally.racing_old);
  RecordProperty("racing_fresh", tally.racing_fresh);
  std::cout << tally.records << " records of 1000 schedules: " << tally.exact
            << " as events demand, " << tally.racing << " of tensors that another stream wrote to "
            << "without an event (" << tally.racing_old << " old, " << tally.racing_fresh
            << " new)\n";
  EXPECT_GT(tally.racing_old, 0);
  EXPECT_GT(tally.racing_fresh, 0);
}

}  // namespace
}  // namespace ttrace::testing
