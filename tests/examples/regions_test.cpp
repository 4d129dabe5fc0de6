// Tensor-parallel regions and the split cross entropy between real ranks: values and gradients
// against the same on one rank.
#include "regions.h"

#include "cross_entropy.h"
#include "ranks.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>

namespace {

using megatron_mini::Parallel;
using megatron_mini::SumOverRanks;
using megatron_mini::testing::world;

Parallel parallel(bool sequence_parallel) {
  return {.world = world(), .tp = world(), .dp = {}, .sequence_parallel = sequence_parallel};
}

// [s, 1, 2] of this rank; s is two rows a rank.
at::Tensor values(int rank) {
  const auto elements = 4 * world().size;
  return (at::arange(elements).to(at::kDouble) + 100.0 * rank).view({-1, 1, 2});
}

at::Tensor sum_of_all_values() {
  at::Tensor sum = at::zeros_like(values(0));
  for (int rank = 0; rank < world().size; ++rank) {
    sum += values(rank);
  }
  return sum;
}

at::Tensor own_rows(const at::Tensor& whole) {
  return whole.narrow(0, 2 * world().rank, 2);
}

struct PassedRegion {
  at::Tensor output;
  at::Tensor gradient;  // of the input
};

template <class Region>
PassedRegion pass(const Region& region,
                  const at::Tensor& input,
                  const at::Tensor& output_gradient) {
  const at::Tensor leaf = input.clone().requires_grad_(true);
  const at::Tensor output = region(leaf);
  output.backward(output_gradient);
  return {.output = output.detach(), .gradient = leaf.grad()};
}

PassedRegion enter(const at::Tensor& input,
                   const at::Tensor& gradient,
                   const Parallel& ranks,
                   SumOverRanks sum = SumOverRanks::kDone) {
  return pass([&](const at::Tensor& x) { return enter_region(x, ranks, sum); }, input, gradient);
}

PassedRegion leave(const at::Tensor& input,
                   const at::Tensor& gradient,
                   const Parallel& ranks,
                   SumOverRanks sum = SumOverRanks::kDone) {
  return pass([&](const at::Tensor& x) { return leave_region(x, ranks, sum); }, input, gradient);
}

TEST(EnterRegion, KeepsValuesAndSumsGradients) {
  const auto passed = enter(values(0), values(world().rank), parallel(false));
  EXPECT_TRUE(passed.output.equal(values(0)));
  EXPECT_TRUE(passed.gradient.equal(sum_of_all_values()));
}

TEST(EnterRegion, WithSequenceParallelismGathersRowsAndScattersGradients) {
  const auto passed = enter(own_rows(values(0)), values(world().rank), parallel(true));
  EXPECT_TRUE(passed.output.equal(values(0)));
  EXPECT_TRUE(passed.gradient.equal(own_rows(sum_of_all_values())));
}

TEST(EnterRegion, SkippedSumLeavesTheRanksOwnGradient) {
  const at::Tensor mine = values(world().rank);
  EXPECT_TRUE(enter(values(0), mine, parallel(false), SumOverRanks::kSkipped).gradient.equal(mine));
  EXPECT_TRUE(enter(own_rows(values(0)), mine, parallel(true), SumOverRanks::kSkipped)
                  .gradient.equal(own_rows(mine)));
}

TEST(LeaveRegion, SumsValuesAndKeepsGradients) {
  const auto passed = leave(values(world().rank), values(7), parallel(false));
  EXPECT_TRUE(passed.output.equal(sum_of_all_values()));
  EXPECT_TRUE(passed.gradient.equal(values(7)));
}

TEST(LeaveRegion, WithSequenceParallelismScattersTheSumAndGathersGradients) {
  const auto passed = leave(values(world().rank), own_rows(values(7)), parallel(true));
  EXPECT_TRUE(passed.output.equal(own_rows(sum_of_all_values())));
  EXPECT_TRUE(passed.gradient.equal(values(7)));
}

TEST(LeaveRegion, SkippedSumReturnsTheRanksOwnAddendAndARightGradient) {
  const at::Tensor mine = values(world().rank);
  const auto whole = leave(mine, values(7), parallel(false), SumOverRanks::kSkipped);
  EXPECT_TRUE(whole.output.equal(mine));
  EXPECT_TRUE(whole.gradient.equal(values(7)));
  const auto rows = leave(mine, own_rows(values(7)), parallel(true), SumOverRanks::kSkipped);
  EXPECT_TRUE(rows.output.equal(own_rows(mine)));
  EXPECT_TRUE(rows.gradient.equal(values(7)));
}

// 10 tokens in columns of 4 a rank: the last of two ranks has 6 columns of padding, of four ranks
// the third has 2 and the fourth nothing else.
TEST(CrossEntropy, SplitOverRanksEqualsTheWholeWithoutPadding) {
  constexpr std::int64_t kTokens = 10;
  const std::int64_t columns = world().size == 2 ? 8 : 4;
  const at::Tensor logits = (at::arange(3 * 2 * kTokens).to(at::kDouble) * 1.3).sin() * 30.0;
  const at::Tensor labels = at::arange(6).view({3, 2}) * 7 % kTokens;

  const at::Tensor whole = logits.view({3, 2, kTokens}).clone().requires_grad_(true);
  const at::Tensor expected = -whole.log_softmax(-1).gather(-1, labels.unsqueeze(-1)).squeeze(-1);
  const at::Tensor output_gradient = at::arange(6).to(at::kDouble).view({3, 2}) + 1.0;
  expected.backward(output_gradient);

  // Padding holds large values, to show that they are not looked at.
  const std::int64_t padding = columns * world().size - kTokens;
  const auto padded = [&](const at::Tensor& tensor, double value) {
    return at::cat({tensor, at::full({3, 2, padding}, value, at::kDouble)}, -1)
        .narrow(-1, columns * world().rank, columns);
  };
  const at::Tensor mine = padded(whole.detach(), 1e3).clone().requires_grad_(true);
  const at::Tensor loss = megatron_mini::cross_entropy(
      mine, labels, {.first = columns * world().rank, .logical = kTokens}, world());
  loss.backward(output_gradient);
  EXPECT_TRUE(at::allclose(loss, expected, 1e-13, 1e-13)) << loss - expected;
  EXPECT_TRUE(at::allclose(mine.grad(), padded(whole.grad(), 0.0), 1e-13, 1e-13));
}

TEST(CrossEntropy, SmoothedLabelsOverRanksEqualTorchsOfTheWhole) {
  constexpr std::int64_t kTokens = 10;
  constexpr double kSmoothing = 0.2;
  const std::int64_t columns = world().size == 2 ? 8 : 4;
  const at::Tensor labels = at::arange(6).view({3, 2}) * 7 % kTokens;
  const at::Tensor whole = (at::arange(3 * 2 * kTokens).to(at::kDouble) * 1.3)
                               .sin()
                               .view({3, 2, kTokens})
                               .requires_grad_(true);
  // Torch gives the label a share of what is spread as well.
  const at::Tensor expected = at::cross_entropy_loss(whole.view({6, kTokens}),
                                                     labels.view({6}),
                                                     {},
                                                     at::Reduction::None,
                                                     -100,
                                                     kSmoothing * kTokens / (kTokens - 1.0))
                                  .view({3, 2});
  const at::Tensor output_gradient = at::arange(6).to(at::kDouble).view({3, 2}) + 1.0;
  expected.backward(output_gradient);
  const auto padded = [&](const at::Tensor& tensor, double value) {
    const std::int64_t padding = columns * world().size - kTokens;
    return at::cat({tensor, at::full({3, 2, padding}, value, at::kDouble)}, -1)
        .narrow(-1, columns * world().rank, columns);
  };
  const at::Tensor mine = padded(whole.detach(), 1e3).clone().requires_grad_(true);
  const at::Tensor loss = megatron_mini::cross_entropy(
      mine,
      labels,
      {.first = columns * world().rank, .logical = kTokens, .smoothing = kSmoothing},
      world());
  loss.backward(output_gradient);
  EXPECT_TRUE(at::allclose(loss, expected, 1e-13, 1e-13)) << loss - expected;
  EXPECT_TRUE(at::allclose(mine.grad(), padded(whole.grad(), 0.0), 1e-13, 1e-13));
}

TEST(GatherFeatures, JoinsTheLastDimensionAndSumsTheUsesOfAFeature) {
  const at::Tensor whole = at::arange(2 * 3 * 4 * world().size)
                               .to(at::kDouble)
                               .view({2, 3, std::int64_t{4} * world().size});
  const auto own = [](const at::Tensor& tensor) { return tensor.narrow(-1, 4 * world().rank, 4); };
  const at::Tensor mine = own(whole).clone().requires_grad_(true);
  const at::Tensor gathered = megatron_mini::gather_features(mine, parallel(false));
  EXPECT_TRUE(gathered.equal(whole));
  gathered.backward(whole * (world().rank + 1));
  const int ranks = world().size;
  EXPECT_TRUE(mine.grad().equal(own(whole) * (ranks * (ranks + 1) / 2)));
}

TEST(CrossEntropy, LargeLogitsStayFinite) {
  const at::Tensor logits = at::full({1, 1, 4}, 1e30).mul(world().rank + 1).requires_grad_(true);
  const at::Tensor labels = at::full({1, 1}, 4 * world().size - 1, at::kLong);
  const at::Tensor loss = megatron_mini::cross_entropy(
      logits, labels, {.first = 4 * world().rank, .logical = 4 * world().size}, world());
  EXPECT_NEAR(loss.item<double>(), std::log(4.0), 1e-6);  // the last rank's four are equal
}

}  // namespace
