// Layers with planted bugs between real ranks.
#include "layers.h"

#include "parts_of.h"
#include "ranks.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

namespace {

using megatron_mini::Blueprint;
using megatron_mini::ColumnParallelLinear;
using megatron_mini::RowParallelLinear;
using megatron_mini::testing::parts_of;
using megatron_mini::testing::world;

constexpr std::int64_t kVocabulary = 257;
constexpr std::int64_t kHidden = 2;

Blueprint blueprint(bool sequence_parallel) {
  Blueprint result;
  result.model.hidden = kHidden;
  result.model.vocabulary = kVocabulary;
  result.parallel = {
      .world = world(), .tp = world(), .dp = {}, .sequence_parallel = sequence_parallel};
  return result;
}

// [rows, 1, h] of a linear with weight 0 and bias (1, 2), so that only the bias is left.
at::Tensor bias_in_output(const std::string& bug, const std::string& path, bool sequence_parallel) {
  const at::NoGradGuard no_grad;
  const auto linear =
      parts_of(bug).row(4 * world().size, kHidden, blueprint(sequence_parallel), path);
  linear->named_parameters()["bias"].copy_(at::arange(1, kHidden + 1));
  return linear->forward(at::ones({world().size, 1, 4}));
}

TEST(RowParallelLinear, RepeatedBiasCountsOncePerRankAtItsSpotOnly) {
  const std::string spot = "decoder.layers.1.self_attention.linear_proj";
  const at::Tensor bias = at::arange(1, kHidden + 1).to(at::kFloat);
  for (const bool sequence_parallel : {false, true}) {
    const std::int64_t rows = sequence_parallel ? 1 : world().size;
    const auto expect = [&](const at::Tensor& output, const at::Tensor& row) {
      EXPECT_TRUE(output.equal(row.expand({rows, 1, kHidden}))) << output;
    };
    expect(bias_in_output("repeated-bias", spot, sequence_parallel), bias * world().size);
    expect(bias_in_output("", spot, sequence_parallel), bias);
    expect(bias_in_output(
               "repeated-bias", "decoder.layers.0.self_attention.linear_proj", sequence_parallel),
           bias);
  }
}

// Two rows a rank, [2 * ranks, 1, h].
at::Tensor gradient_of_rank(int rank) {
  const auto elements = std::int64_t{4} * world().size;
  return (at::arange(elements).to(at::kFloat) + 100.0 * rank).view({-1, 1, kHidden});
}

at::Tensor two_rows_of_rank(const at::Tensor& whole) {
  return whole.narrow(0, std::int64_t{2} * world().rank, 2);
}

at::Tensor sum_of_all_gradients() {
  at::Tensor sum = at::zeros_like(gradient_of_rank(0));
  for (int rank = 0; rank < world().size; ++rank) {
    sum += gradient_of_rank(rank);
  }
  return sum;
}

struct LinearPass {
  at::Tensor output;
  at::Tensor gradient;  // of the input
};

// A column-parallel linear_qkv of layer 1 that multiplies by 1 on every rank; the gradient of its
// output is gradient_of_rank(rank).
LinearPass pass_with(const std::string& bug, const at::Tensor& input, bool sequence_parallel) {
  const auto linear = parts_of(bug).column(kHidden,
                                           kHidden * world().size,
                                           blueprint(sequence_parallel),
                                           "decoder.layers.1.self_attention.linear_qkv");
  linear->named_parameters()["weight"].detach().copy_(at::eye(kHidden));
  const at::Tensor leaf = input.clone().requires_grad_(true);
  const at::Tensor output = linear->forward(leaf);
  output.backward(gradient_of_rank(world().rank));
  return {.output = output.detach(), .gradient = leaf.grad()};
}

TEST(ColumnParallelLinear, DoubleReductionMultipliesTheGradientByTheNumberOfRanks) {
  const at::Tensor sum = sum_of_all_gradients();
  EXPECT_TRUE(pass_with("", gradient_of_rank(0), false).gradient.equal(sum));
  const auto passed = pass_with("double-reduction", gradient_of_rank(0), false);
  EXPECT_TRUE(passed.output.equal(gradient_of_rank(0)));
  EXPECT_TRUE(passed.gradient.equal(sum * world().size));
  EXPECT_TRUE(pass_with("double-reduction", two_rows_of_rank(gradient_of_rank(0)), true)
                  .gradient.equal(two_rows_of_rank(sum * world().size)));
}

TEST(ColumnParallelLinear, GatherOrderPutsTheFirstRanksRowsLastAndLeavesTheGradient) {
  const at::Tensor whole = gradient_of_rank(0);
  const auto passed = pass_with("gather-order", two_rows_of_rank(whole), true);
  EXPECT_TRUE(passed.output.equal(whole.roll(-2, 0)));
  EXPECT_TRUE(passed.gradient.equal(two_rows_of_rank(sum_of_all_gradients())));
  EXPECT_TRUE(pass_with("", two_rows_of_rank(whole), true).output.equal(whole));
}

// Whether each of these tokens gives its row, whose values are token + 1, and not zeros.
bool looks_up(const std::string& bug, std::int64_t token) {
  const at::NoGradGuard no_grad;
  const auto embedding = parts_of(bug).embedding(blueprint(false));
  const std::int64_t rows = embedding->weight().size(0);
  const at::Tensor values = at::arange(rows * world().rank + 1, rows * (world().rank + 1) + 1);
  embedding->weight().copy_(values.unsqueeze(-1).expand({rows, kHidden}));
  const at::Tensor output = embedding->forward(at::full({1, 1}, token, at::kLong));
  const double value = output[0][0][0].item<double>();
  EXPECT_TRUE(value == 0.0 || value == static_cast<double>(token + 1)) << value;
  return value != 0.0;
}

// The last row of a shard, and token 256, the last of the vocabulary, which begins every sample.
TEST(VocabularyEmbedding, MaskOffByOneLosesTheLastTokenOfEveryShard) {
  const std::int64_t rows =
      megatron_mini::padded_vocabulary(kVocabulary, world().size) / world().size;
  for (const std::int64_t token : {rows - 1, kVocabulary - 1}) {
    EXPECT_TRUE(looks_up("", token)) << token;
    EXPECT_FALSE(looks_up("embedding-mask", token)) << token;
  }
  for (const std::int64_t token : {std::int64_t{0}, rows - 2, rows}) {
    EXPECT_EQ(looks_up("embedding-mask", token), looks_up("", token)) << token;
  }
}

// y = A x on every rank as a whole, where rows of x and y are spread: values and gradients of the
// rows are those of one rank, the weight's gradient is whole.
TEST(RedundantLayer, GathersRowsAndHandsOutItsOwn) {
  Blueprint plan = blueprint(true);
  plan.parallel.is_redundant = true;
  RowParallelLinear down(3, kHidden, plan, "down");
  ColumnParallelLinear up(kHidden, 3, plan, "up");
  const auto fill = [](at::Tensor tensor, double start) {
    const at::NoGradGuard no_grad;
    tensor.copy_((at::arange(tensor.numel()).to(at::kFloat) + start).view(tensor.sizes()));
  };
  fill(up.named_parameters()["weight"], 1.0);
  fill(down.named_parameters()["weight"], -2.0);
  const std::int64_t rows = 2;
  const at::Tensor whole =
      (at::arange(rows * world().size * kHidden).to(at::kFloat) - 3.0).view({-1, 1, kHidden});
  const at::Tensor mine = whole.narrow(0, rows * world().rank, rows).clone().requires_grad_(true);
  const at::Tensor output = down.forward(up.forward(mine));
  output.backward(output.detach() + 1.0);

  const at::Tensor x = whole.clone().requires_grad_(true);
  const at::Tensor u = up.named_parameters()["weight"].detach().requires_grad_(true);
  const at::Tensor d = down.named_parameters()["weight"].detach().requires_grad_(true);
  const at::Tensor y = at::linear(at::linear(x, u), d);
  y.backward(y.detach() + 1.0);
  EXPECT_TRUE(output.equal(y.narrow(0, rows * world().rank, rows)));
  EXPECT_TRUE(mine.grad().equal(x.grad().narrow(0, rows * world().rank, rows)));
  EXPECT_TRUE(up.named_parameters()["weight"].grad().equal(u.grad()));
  EXPECT_TRUE(down.named_parameters()["weight"].grad().equal(d.grad()));
}

}  // namespace
