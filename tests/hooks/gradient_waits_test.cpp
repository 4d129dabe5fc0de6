// Tests what happens to the gradients that a step expects.
#include "hooks/capture/gradient_waits.h"

#include "hooks/write/writer_thread.h"

#include <gmock/gmock.h>

#include <cstring>

namespace ttrace {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Keeps ids with their order and first value.
class KeepingSink : public Sink {
 public:
  struct Kept {
    std::vector<std::string> records;  // "id order value"
    std::vector<std::string> notes;
  };
  explicit KeepingSink(Kept& kept) : kept_(kept) {}
  void begin_step(std::int64_t /*step*/, std::uint64_t /*began*/) override {}
  void append(Record record, std::span<const std::byte> bytes) override {
    float value = 0.0F;
    std::memcpy(&value, bytes.data(), sizeof value);
    kept_.records.push_back(to_string(record.id) + " " + std::to_string(record.order) + " " +
                            std::to_string(static_cast<int>(value)));
  }
  void note(std::string remark) override { kept_.notes.push_back(std::move(remark)); }
  void flush() override {}
  void end_step(bool /*whole*/) override {}

 private:
  Kept& kept_;
};

TensorCopy copy_of(float value) {
  TensorCopy copy{ElementType::kF32, {1}, std::vector<std::byte>(sizeof value)};
  std::memcpy(copy.bytes.data(), &value, sizeof value);
  return copy;
}

class Gradients : public ::testing::Test {
 protected:
  Gradients() {
    writer_.begin_step(0, 0);
    recorder_.begin_step(0, StepClock(), &writer_);
  }

  GradientSlotPtr expect(const std::string& path) {
    auto slot = std::make_shared<GradientSlot>();
    slot->microbatch = microbatch_;
    waits_.expect(
        slot, recorder_.next_id({Kind::kOutput, path}, microbatch_.get()), Kind::kGradOutput);
    return slot;
  }
  // The records, once all of them are written.
  const KeepingSink::Kept& kept() {
    writer_.end_step([] { return true; });
    return kept_;
  }

  KeepingSink::Kept kept_;
  WriterThread writer_{std::make_unique<KeepingSink>(kept_),
                       [](const std::exception_ptr&) { ADD_FAILURE() << "the sink threw"; }};
  Recorder recorder_{Environment(), Layout(), Annotations()};
  MicrobatchPtr microbatch_ = std::make_shared<MicrobatchState>();
  GradientWaits waits_{recorder_};
};

TEST_F(Gradients, ArriveOnceAndAreRecordedUnderTheNameOfTheirValue) {
  const GradientSlotPtr slot = expect("mlp");
  EXPECT_TRUE(GradientWaits::is_awaited(*slot, 0));
  EXPECT_FALSE(waits_.arrive(*slot).has_value());
  waits_.record(*slot, copy_of(5.0F));
  EXPECT_FALSE(GradientWaits::is_awaited(*slot, 0)) << "it is there";
  EXPECT_EQ(waits_.settle(), 0U);
  EXPECT_THAT(kept().records, ElementsAre("s0/m0/grad_output/mlp/0 1 5"));
}

TEST_F(Gradients, SlotsOfDiscardedValuesAndOtherStepsAreNotAwaited) {
  const GradientSlotPtr slot = expect("mlp");
  EXPECT_FALSE(GradientWaits::is_awaited(*slot, 1));
  slot->discarded = true;
  EXPECT_FALSE(GradientWaits::is_awaited(*slot, 0));
  EXPECT_FALSE(GradientWaits::is_awaited(GradientSlot(), 0)) << "its value is not recorded yet";
  EXPECT_EQ(waits_.settle(), 0U);
  EXPECT_THAT(kept().notes, IsEmpty());
}

TEST_F(Gradients, FallbackIsRecordedInItsPlaceWhereTheGradientItselfDoesNotArrive) {
  const GradientSlotPtr replaced = expect("residual");
  const GradientSlotPtr direct = expect("mlp");
  waits_.keep_fallback(*replaced, copy_of(1.0F));
  waits_.keep_fallback(*direct, copy_of(2.0F));
  auto earlier = waits_.arrive(*direct);
  ASSERT_TRUE(earlier.has_value());
  EXPECT_EQ((*std::move(earlier)).take().bytes, copy_of(2.0F).bytes);
  waits_.record(*direct, copy_of(3.0F));
  EXPECT_EQ(waits_.settle(), 0U);
  EXPECT_THAT(kept().records,
              ElementsAre("s0/m0/grad_output/mlp/0 3 3", "s0/m0/grad_output/residual/0 1 1"));
}

TEST_F(Gradients, MissingOnesAreCountedAndNoted) {
  const GradientSlotPtr slot = expect("mlp");
  EXPECT_EQ(waits_.settle(), 1U);
  EXPECT_EQ(waits_.settle(), 0U) << "settled already";
  EXPECT_THAT(kept().notes, ElementsAre("s0/m0/output/mlp/0 got no gradient"));
}

TEST_F(Gradients, UnreadableOneIsNotedOnce) {
  const GradientSlotPtr slot = expect("mlp");
  static_cast<void>(waits_.arrive(*slot));
  waits_.note_unreadable(*slot, "is a tensor subclass");
  waits_.note_unreadable(*slot, "is a tensor subclass");
  EXPECT_EQ(waits_.settle(), 0U);
  EXPECT_THAT(kept().notes,
              ElementsAre("s0/m0/grad_output/mlp/0 is a tensor subclass, so it was not recorded"));
}

TEST_F(Gradients, LocalSlotsAreFoundByTheirNumber) {
  const GradientSlotPtr slot = expect("mlp");
  const std::int64_t number = waits_.add_local(slot);
  EXPECT_EQ(waits_.local(number), slot);
  EXPECT_EQ(waits_.local(number + 1), nullptr);
  EXPECT_EQ(waits_.local(kNoLocalGradient), nullptr);
  waits_.clear();
  EXPECT_EQ(waits_.local(number), nullptr);
  EXPECT_THAT(kept().records, IsEmpty());
}

}  // namespace
}  // namespace ttrace
