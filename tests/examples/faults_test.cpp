// Planted bugs of megatron_mini that need no other rank to be seen.
#include "error.h"
#include "faults/planted.h"
#include "faults/ring_faults.h"
#include "faults/wrong_positions.h"
#include "faults/wrong_products.h"
#include "layers.h"
#include "parts_of.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace {

using megatron_mini::Blueprint;
using megatron_mini::Parallel;
namespace faults = megatron_mini::faults;

constexpr std::int64_t kSequence = 8;

// Rank 0 of two context-parallel ranks has rows 0, 1, 6, 7 of a sample with documents of 3 and 5
// tokens.
std::vector<std::int64_t> taken(faults::Positions positions) {
  const at::Tensor documents = at::arange(kSequence).ge(3).to(at::kLong).unsqueeze(1);
  megatron_mini::TokenPlaces places;
  places.positions = at::tensor({0, 1, 3, 4}, at::kLong).unsqueeze(1);
  places.documents = documents;
  const at::Tensor used =
      positions(places, {.name = "cp", .rank = 0, .size = 2}).flatten().contiguous();
  return {used.const_data_ptr<std::int64_t>(), used.const_data_ptr<std::int64_t>() + used.numel()};
}

TEST(WrongPositions, AreThoseThatTheirNamesSay) {
  using Numbers = std::vector<std::int64_t>;
  EXPECT_EQ(taken(faults::positions_from_zero), (Numbers{0, 1, 2, 3}));
  EXPECT_EQ(taken(faults::positions_of_contiguous_parts), (Numbers{0, 1, 2, 3}));
  EXPECT_EQ(taken(faults::positions_within_samples), (Numbers{0, 1, 6, 7}));
  EXPECT_EQ(taken(faults::positions_of_first_tokens), (Numbers{0, 1, 2, 0}));
  // Padded to 4 tokens the first document would end before row 4.
  EXPECT_EQ(taken(faults::positions_of_padded_documents), (Numbers{0, 1, 2, 3}));
}

TEST(FaultyRing, RoundsToTheMantissaOfBf16) {
  const at::Tensor values = at::linspace(-7.0, 5.0, 1001);
  EXPECT_TRUE(faults::rounded_to_bits(values, 7).equal(values.to(at::kBFloat16).to(at::kFloat)));
  const at::Tensor nothing = at::full({1}, -std::numeric_limits<double>::infinity());
  EXPECT_TRUE(faults::rounded_to_bits(nothing, 7).equal(nothing));
}

TEST(FaultyRing, ReadsRowsOfHeadsAsHeadsOfRows) {
  // Head g of row s has the value 10 g + s; sent are rows 0, 1, 2 of heads 0 and 1.
  const at::Tensor heads = at::tensor({0, 1, 2, 10, 11, 12}, at::kLong).view({1, 1, 2, 1, 3, 1});
  EXPECT_TRUE(faults::with_heads_and_rows_swapped(heads).flatten().equal(
      at::tensor({0, 10, 1, 11, 2, 12}, at::kLong)));
}

TEST(FaultyLinear, BackwardMultipliesByTheInputOfTheLastCall) {
  const at::Tensor weight = at::eye(2).requires_grad_(true);
  const auto product = [&](double value) {
    const at::Tensor input = at::full({1, 1, 2}, value);
    return faults::linear_with_saved_input(input, faults::kept_in_shared_buffer(input), weight);
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
  blueprint.model.hidden = 4;
  blueprint.model.norm_epsilon = 1e-5;
  const auto norm =
      megatron_mini::testing::parts_of(bug).norm(blueprint, "decoder.final_layernorm");
  const at::Tensor output = norm->forward(at::arange(24.0).sin().view({6, 1, 4}));
  (output * at::arange(24.0).cos().view({6, 1, 4})).sum().backward();
  return {output.detach(), norm->parameters()[0].grad(), norm->parameters()[1].grad()};
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

TEST(PartsWithBug, NeedABugOfATable) {
  EXPECT_THROW(static_cast<void>(faults::parts_with_bug("no-such-bug")),
               megatron_mini::InternalError);
}

}  // namespace
