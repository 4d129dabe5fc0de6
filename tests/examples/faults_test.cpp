// Planted bugs of megatron_mini that need no other rank to be seen.
#include "attention.h"
#include "bugs.h"
#include "faulty_linear.h"
#include "faulty_positions.h"
#include "faulty_reduction.h"
#include "faulty_ring.h"
#include "layers.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace {

using megatron_mini::Blueprint;
using megatron_mini::Bugs;
using megatron_mini::LayerNorm;
using megatron_mini::Parallel;
using megatron_mini::ParameterRole;

constexpr std::int64_t kSequence = 8;

// Rank 0 of two context-parallel ranks has rows 0, 1, 6, 7 of a sample with documents of 3 and 5
// tokens.
std::vector<std::int64_t> positions_with(const std::string& bug) {
  const at::Tensor documents = at::arange(kSequence).ge(3).to(at::kLong).unsqueeze(1);
  megatron_mini::TokenPlaces places;
  places.positions = at::tensor({0, 1, 3, 4}, at::kLong).unsqueeze(1);
  places.documents = documents;
  const at::Tensor used =
      megatron_mini::rotary_positions(places, {.name = "cp", .rank = 0, .size = 2}, Bugs(bug))
          .squeeze(1)
          .contiguous();
  return {used.const_data_ptr<std::int64_t>(), used.const_data_ptr<std::int64_t>() + used.numel()};
}

TEST(FaultyPositions, AreThoseThatEachBugNames) {
  using Positions = std::vector<std::int64_t>;
  EXPECT_EQ(positions_with(""), (Positions{0, 1, 3, 4}));
  EXPECT_EQ(positions_with("positions-restart-on-ranks"), (Positions{0, 1, 2, 3}));
  EXPECT_EQ(positions_with("zigzag-positions-contiguous"), (Positions{0, 1, 2, 3}));
  EXPECT_EQ(positions_with("packed-positions-not-restarted"), (Positions{0, 1, 6, 7}));
  EXPECT_EQ(positions_with("packed-positions-without-cp"), (Positions{0, 1, 2, 0}));
  // Padded to 4 tokens the first document would end before row 4.
  EXPECT_EQ(positions_with("packed-lengths-of-padded-documents"), (Positions{0, 1, 2, 3}));
}

TEST(FaultyRing, RoundsToTheMantissaOfBf16) {
  const at::Tensor values = at::linspace(-7.0, 5.0, 1001);
  EXPECT_TRUE(
      megatron_mini::rounded_to_bits(values, 7).equal(values.to(at::kBFloat16).to(at::kFloat)));
  const at::Tensor nothing = at::full({1}, -std::numeric_limits<double>::infinity());
  EXPECT_TRUE(megatron_mini::rounded_to_bits(nothing, 7).equal(nothing));
}

TEST(FaultyRing, ReadsRowsOfHeadsAsHeadsOfRows) {
  // Head g of row s has the value 10 g + s; sent are rows 0, 1, 2 of heads 0 and 1.
  const at::Tensor heads = at::tensor({0, 1, 2, 10, 11, 12}, at::kLong).view({1, 1, 2, 1, 3, 1});
  EXPECT_TRUE(megatron_mini::with_heads_and_rows_swapped(heads).flatten().equal(
      at::tensor({0, 10, 1, 11, 2, 12}, at::kLong)));
}

TEST(FaultyLinear, BackwardMultipliesByTheInputOfTheLastCall) {
  const at::Tensor weight = at::eye(2).requires_grad_(true);
  const auto product = [&](double value) {
    const at::Tensor input = at::full({1, 1, 2}, value);
    return megatron_mini::linear_with_saved_input(
        input, megatron_mini::kept_in_shared_buffer(input), weight);
  };
  const at::Tensor first = product(3.0);
  const at::Tensor second = product(5.0);
  EXPECT_TRUE(first.equal(at::full({1, 1, 2}, 3.0)));
  (first + second).sum().backward();
  EXPECT_TRUE(weight.grad().equal(at::full({2, 2}, 10.0)));
}

Parallel second_of_two_tp_ranks() {
  return {.world = {.name = "world", .rank = 1, .size = 2},
          .tp = {.name = "tp", .rank = 1, .size = 2},
          .dp = {.name = "dp"}};
}

// The output and the gradients of weight and bias.
std::vector<at::Tensor> normalised_with(const std::string& bug) {
  Blueprint blueprint{};
  blueprint.parallel = second_of_two_tp_ranks();
  blueprint.bugs = Bugs(bug);
  blueprint.model.hidden = 4;
  blueprint.model.norm_epsilon = 1e-5;
  LayerNorm norm(blueprint);
  const at::Tensor output = norm.forward(at::arange(24.0).sin().view({6, 1, 4}));
  (output * at::arange(24.0).cos().view({6, 1, 4})).sum().backward();
  return {output.detach(), norm.parameters()[0].grad(), norm.parameters()[1].grad()};
}

TEST(FaultyNorm, ResynchronisedParametersKeepTheirValueButNotTheirGradient) {
  const auto right = normalised_with("");
  const auto wrong = normalised_with("norm-resync-divides-grad");
  EXPECT_TRUE(wrong[0].equal(right[0]));
  EXPECT_TRUE(wrong[1].equal(right[1] / 2.0));
  EXPECT_TRUE(wrong[2].equal(right[2] / 2.0));
}

TEST(FaultyNorm, HalvesOfTheRowsGiveTheSameUpToRounding) {
  const auto right = normalised_with("");
  const auto wrong = normalised_with("tp-replica-drift");
  EXPECT_TRUE(wrong[0].equal(right[0]));
  EXPECT_TRUE(wrong[1].allclose(right[1], 1e-5, 1e-6));
}

TEST(FaultyReduction, SumsTheGradientsOfNormsAsEachBugSays) {
  const auto sum = [](const std::string& bug, const std::string& norm) {
    return megatron_mini::sum_over_tp({.path = "decoder.layers.0." + norm + ".weight",
                                       .tensor = {},
                                       .role = ParameterRole::kReplicatedNorm},
                                      4,
                                      Bugs(bug));
  };
  EXPECT_TRUE(sum("", "input_layernorm").done);
  EXPECT_EQ(sum("", "input_layernorm").factor, 1.0);
  EXPECT_FALSE(sum("sp-norm-grad", "pre_mlp_layernorm").done);
  EXPECT_EQ(sum("sp-norm-grad-averaged", "pre_mlp_layernorm").factor, 0.25);
  EXPECT_FALSE(sum("sp-norm-hook-misplaced", "input_layernorm").done);
  EXPECT_EQ(sum("sp-norm-hook-misplaced", "pre_mlp_layernorm").factor, 4.0);
}

TEST(FaultyReduction, DividesGradientsAsEachBugSays) {
  Parallel parallel = second_of_two_tp_ranks();
  parallel.dp.size = 3;
  parallel.cp.size = 2;
  parallel.dp_cp.size = 6;
  const auto divisor = [&](const std::string& bug) {
    return megatron_mini::gradient_divisor(megatron_mini::Loss::kMean, parallel, Bugs(bug));
  };
  EXPECT_EQ(divisor(""), 6.0);
  EXPECT_EQ(divisor("dp-divisor"), 1.0);
  EXPECT_EQ(divisor("cp-left-out-of-divisor"), 3.0);
  EXPECT_EQ(divisor("loss-scale-not-applied"), 6.0 * 32768.0);
  EXPECT_EQ(divisor("grads-divided-by-world"), 12.0);
}

}  // namespace
