// Gradients whose ranks hold addends that the program adds up after backward.
#include "trace/merge/summed_gradients.h"

#include "analysis/diff.h"
#include "analysis/golden_wording.h"
#include "analysis/infer/settle.h"
#include "support/temporary_directory.h"
#include "trace_builder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

namespace ttrace {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::part;
using testing::scaled;
using ::testing::SizeIs;
using testing::Tensor;
using testing::TraceBuilder;
using testing::wavy;
using Numbers = std::vector<double>;

constexpr auto kAddendGradient = "s0/m0/param_grad/norm.weight/0";
constexpr auto kSummedMain = "s0/main_grad/norm.weight/0";

Numbers sum_of(const Numbers& left, const Numbers& right) {
  Numbers sum(left.size());
  std::ranges::transform(left, right, sum.begin(), std::plus<>());
  return sum;
}

// A weight that two ranks hold and use on heads of their own.
class SummedGradientsTest : public ::testing::Test {
 protected:
  // What the ranks hold after the reduction.
  void add_main(const Numbers& first, const Numbers& second) {
    candidate_.add(0, {kSummedMain, first}).add(1, {kSummedMain, second});
  }
  Report compare() {
    reference_.add(0, {kAddendGradient, sum_of(first_, second_)})
        .add(0, {kSummedMain, sum_of(first_, second_)});
    candidate_.add(0, undeclared(first_)).add(1, undeclared(second_));
    const Trace reference = reference_.write();
    Trace candidate = candidate_.write();
    settled_ = settle_placements(reference, candidate, 1);
    return diff(reference, candidate);
  }
  static Tensor undeclared(const Numbers& values) {
    return {kAddendGradient, values, ElementType::kF32, {}, {}, true};
  }

  Numbers first_ = wavy(16, 0.0);
  Numbers second_ = wavy(16, 2.0);
  testing::TemporaryDirectory folder_;
  TraceBuilder reference_{folder_ / "reference", "reference"};
  TraceBuilder candidate_{folder_ / "candidate", "candidate", 2};
  std::vector<SettledClass> settled_;
};

// Symptom: the first divergence of a right program was "missing reduction" at the gradient before
// the reduction, although the reduced one was right.
TEST_F(SummedGradientsTest, AddendsThatTheMainGradientIsTheSumOfAreNoFinding) {
  add_main(sum_of(first_, second_), sum_of(first_, second_));
  EXPECT_FALSE(compare().diverged());
  ASSERT_THAT(settled_, SizeIs(1));
  EXPECT_EQ(settled_.front().settlement, Settlement::kSummed);
  EXPECT_WORDING(settled_.front().sentence());
}

// Symptom: ranks that average the gradients of their own positions after backward were told that
// a sum over ranks is missing.
TEST_F(SummedGradientsTest, AddendsThatTheMainGradientIsTheMeanOfAreNoFinding) {
  const Numbers mean = sum_of(first_, second_);
  first_ = scaled(first_, 2.0);
  second_ = scaled(second_, 2.0);
  add_main(mean, mean);
  candidate_.add(0, undeclared(first_)).add(1, undeclared(second_));
  reference_.add(0, {kAddendGradient, mean}).add(0, {kSummedMain, mean});
  const Trace reference = reference_.write();
  Trace candidate = candidate_.write();
  settled_ = settle_placements(reference, candidate, 1);
  EXPECT_FALSE(diff(reference, candidate).diverged());
  ASSERT_THAT(settled_, SizeIs(1));
  EXPECT_EQ(settled_.front().settlement, Settlement::kAveraged);
}

TEST_F(SummedGradientsTest, AMissingReductionStaysAFinding) {
  add_main(first_, second_);
  const Report report = compare();
  ASSERT_TRUE(report.diverged());
  ASSERT_THAT(settled_, SizeIs(1));
  EXPECT_EQ(settled_.front().settlement, Settlement::kQuestion);
}

TEST_F(SummedGradientsTest, AMeanInPlaceOfTheSumStaysAFinding) {
  const Numbers mean = scaled(sum_of(first_, second_), 0.5);
  add_main(mean, mean);
  EXPECT_TRUE(compare().diverged());
}

TEST_F(SummedGradientsTest, AWrongAddendIsFoundInTheSum) {
  const Numbers wrong = sum_of(first_, scaled(second_, 1.5));
  add_main(wrong, wrong);
  Numbers right = second_;
  second_ = scaled(second_, 1.5);
  candidate_.add(0, undeclared(first_)).add(1, undeclared(second_));
  reference_.add(0, {kAddendGradient, sum_of(first_, right)})
      .add(0, {kSummedMain, sum_of(first_, right)});
  const Trace reference = reference_.write();
  Trace candidate = candidate_.write();
  EXPECT_THAT(place_summed_gradients(candidate), SizeIs(1));
  EXPECT_TRUE(diff(reference, candidate).diverged());
}

TEST_F(SummedGradientsTest, WhatIsDeclaredIsNotGuessed) {
  candidate_.add(0, {kAddendGradient, first_}).add(1, {kAddendGradient, second_});
  add_main(sum_of(first_, second_), sum_of(first_, second_));
  Trace candidate = candidate_.write();
  EXPECT_THAT(place_summed_gradients(candidate), IsEmpty());
}

TEST_F(SummedGradientsTest, OverTheMicroBatchesOfAStepTheAddendsAddUp) {
  candidate_.add(0, undeclared(first_)).add(1, undeclared(second_));
  Tensor other = undeclared(scaled(first_, 3.0));
  other.id = "s0/m1/param_grad/norm.weight/0";
  candidate_.add_everywhere(other);  // equal by chance: addends all the same
  const Numbers sum = sum_of(sum_of(first_, second_), scaled(first_, 6.0));
  add_main(sum, sum);
  Trace candidate = candidate_.write();
  EXPECT_THAT(place_summed_gradients(candidate), SizeIs(2));
}

// --- parameters that not all ranks have --------------------------------------------------------

Tensor addend_of(int rank, const std::string& id, const Numbers& values) {
  Tensor tensor{id, values};
  tensor.placement = part(std::ssize(values), 0, 1);
  tensor.placement.partial_index = rank;
  tensor.placement.partial_count = 2;
  tensor.placement.partial_over = "tp";
  return tensor;
}

// Symptom: the gradient of an expert that one rank holds was "addend 0 of 2 is missing".
TEST_F(SummedGradientsTest, ARankThatLacksTheParameterAddsNothing) {
  reference_.add(0, {kAddendGradient, first_}).add(0, {kSummedMain, first_});
  candidate_.add(1, addend_of(1, kAddendGradient, first_)).add(1, {kSummedMain, first_});
  const Trace reference = reference_.write();
  Trace candidate = candidate_.write();
  static_cast<void>(settle_placements(reference, candidate, 1));
  EXPECT_FALSE(diff(reference, candidate).diverged());
}

TEST_F(SummedGradientsTest, ARankThatHasTheParameterAndNoGradientIsAFinding) {
  reference_.add(0, {kAddendGradient, first_}).add(0, {kSummedMain, first_});
  candidate_.add(1, addend_of(1, kAddendGradient, first_)).add_everywhere({kSummedMain, first_});
  const Trace reference = reference_.write();
  Trace candidate = candidate_.write();
  static_cast<void>(settle_placements(reference, candidate, 1));
  const Report report = diff(reference, candidate);
  ASSERT_TRUE(report.diverged());
  EXPECT_EQ(to_string(report.tensors[*report.first_divergence].id), kAddendGradient);
}

}  // namespace
}  // namespace ttrace
