// Tests which values replace the program's own.
#include "hooks/capture/replacement.h"

#include "hooks/write/writer_thread.h"

#include <gmock/gmock.h>

#include <cstring>

namespace ttrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class NotingSink : public Sink {
 public:
  explicit NotingSink(std::vector<std::string>& notes) : notes_(notes) {}
  void begin_step(std::int64_t /*step*/, std::uint64_t /*began*/) override {}
  void append(Record /*record*/, std::span<const std::byte> /*bytes*/) override {}
  void note(std::string remark) override { notes_.push_back(std::move(remark)); }
  void flush() override {}
  void end_step(bool /*whole*/) override {}

 private:
  std::vector<std::string>& notes_;
};

std::vector<std::byte> bytes_of(const std::vector<float>& values) {
  std::vector<std::byte> bytes(values.size() * sizeof(float));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

TensorCopy copy_of(const std::vector<float>& values) {
  return {ElementType::kF32, {std::ssize(values)}, bytes_of(values)};
}

// Has a value for the module `known` alone: its own number for every element.
class KnownValues : public GivenValues {
 public:
  [[nodiscard]] std::optional<std::vector<std::byte>> value(const TensorId& id,
                                                            const Placement& /*placement*/,
                                                            const TensorCopy& own) const override {
    if (id.path != "known") {
      return std::nullopt;
    }
    const auto microbatch = static_cast<float>(id.microbatch);
    return bytes_of(std::vector<float>(static_cast<std::size_t>(own.shape.front()), microbatch));
  }
  [[nodiscard]] bool should_have_all() const override { return true; }
};

TensorId output_in(const std::string& path, std::int64_t microbatch = 7) {
  TensorId id;
  id.path = path;
  id.microbatch = microbatch;
  return id;
}

class Replacements : public ::testing::Test {
 protected:
  Replacements() {
    writer_.begin_step(0, 0);
    recorder_.begin_step(0, StepClock(), &writer_);
  }

  std::vector<std::string> notes_;
  WriterThread writer_{std::make_unique<NotingSink>(notes_),
                       [](const std::exception_ptr&) { ADD_FAILURE() << "the sink threw"; }};
  Recorder recorder_{Environment(), Layout(), Annotations()};
  Replacement replacement_{std::make_unique<KnownValues>(), recorder_};
};

TEST_F(Replacements, ProgramKeepsItsOwnWhereNothingIsGiven) {
  Replacement none(nullptr, recorder_);
  EXPECT_FALSE(none.active());
  EXPECT_FALSE(none.of(output_in("known"), copy_of({1.0F}), {}).has_value());
  EXPECT_FALSE(none.of(std::vector<RowPart>(1), Kind::kOutput, copy_of({1.0F})).has_value());
}

TEST_F(Replacements, GivenValueTakesThePlaceOfATensor) {
  EXPECT_TRUE(replacement_.active());
  EXPECT_EQ(replacement_.of(output_in("known"), copy_of({1.0F, 2.0F}), {}), bytes_of({7.0F, 7.0F}));
}

TEST_F(Replacements, RowsOfEachMicrobatchAreReplacedAndTheOthersStay) {
  Rows rows;
  rows.index = {0, 0, kPadding};
  rows.size = 1;
  rows.microbatch = {4, 5, 4};
  rows.microbatches = {4, 5};
  auto parts = split_rows(rows, {3}, std::make_shared<MicrobatchState>());
  for (RowPart& part : parts) {
    part.value = output_in("known", part.microbatch->index);
  }
  EXPECT_EQ(replacement_.of(parts, Kind::kOutput, copy_of({1.0F, 2.0F, 3.0F})),
            bytes_of({4.0F, 5.0F, 3.0F}));
}

TEST_F(Replacements, FirstMissingValueOfAStepIsNoted) {
  EXPECT_FALSE(replacement_.of(output_in("one"), copy_of({1.0F}), {}).has_value());
  EXPECT_FALSE(replacement_.of(output_in("two"), copy_of({1.0F}), {}).has_value());
  const TensorCopy code{ElementType::kU8, {1}, {std::byte{3}}};
  EXPECT_FALSE(replacement_.of(output_in("code"), code, {}).has_value());
  replacement_.end_step();
  EXPECT_FALSE(replacement_.of(output_in("three"), copy_of({1.0F}), {}).has_value());
  writer_.end_step([] { return true; });
  EXPECT_THAT(notes_,
              ElementsAre(HasSubstr("s0/m7/output/one/0"), HasSubstr("s0/m7/output/three/0")));
}

}  // namespace
}  // namespace ttrace
