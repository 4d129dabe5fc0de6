// Layers with planted bugs between real ranks.
#include "layers.h"

#include "ranks.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

namespace {

using megatron_mini::Blueprint;
using megatron_mini::Bugs;
using megatron_mini::RowParallelLinear;
using megatron_mini::VocabularyEmbedding;
using megatron_mini::testing::world;

constexpr std::int64_t kVocabulary = 257;
constexpr std::int64_t kHidden = 2;

Blueprint blueprint(const std::string& bug, bool sequence_parallel) {
  Blueprint result;
  result.model.hidden = kHidden;
  result.model.vocabulary = kVocabulary;
  result.parallel = {
      .world = world(), .tp = world(), .dp = {}, .sequence_parallel = sequence_parallel};
  result.bugs = Bugs(bug);
  return result;
}

// [rows, 1, h] of a linear with weight 0 and bias (1, 2), so that only the bias is left.
at::Tensor bias_in_output(const std::string& bug, const std::string& path, bool sequence_parallel) {
  const at::NoGradGuard no_grad;
  RowParallelLinear linear(4 * world().size, kHidden, blueprint(bug, sequence_parallel), path);
  linear.named_parameters()["bias"].copy_(at::arange(1, kHidden + 1));
  return linear.forward(at::ones({world().size, 1, 4}));
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

// Whether each of these tokens comes out as its row, whose values are token + 1, and not as zeros.
bool looks_up(const std::string& bug, std::int64_t token) {
  const at::NoGradGuard no_grad;
  VocabularyEmbedding embedding(blueprint(bug, false));
  const std::int64_t rows = embedding.weight().size(0);
  const at::Tensor values = at::arange(rows * world().rank + 1, rows * (world().rank + 1) + 1);
  embedding.weight().copy_(values.unsqueeze(-1).expand({rows, kHidden}));
  const at::Tensor output = embedding.forward(at::full({1, 1}, token, at::kLong));
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

}  // namespace
