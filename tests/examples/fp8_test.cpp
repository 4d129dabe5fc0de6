// FP8 linears that several ranks share, against the same linear on one rank.
#include "error.h"
#include "fp8_histories.h"
#include "fp8_linear.h"
#include "layers.h"
#include "plain_parts.h"
#include "ranks.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>

namespace {

using megatron_mini::Blueprint;
using megatron_mini::ColumnParallelLinear;
using megatron_mini::Fp8Config;
using megatron_mini::Fp8Quantiser;
using megatron_mini::Fp8Recipe;
using megatron_mini::Parallel;
using megatron_mini::RowParallelLinear;
using megatron_mini::testing::world;

constexpr std::int64_t kFeatures = 512;  // blocks of 128 for each of four ranks
constexpr std::int64_t kRows = 8;
constexpr const char* kPath = "decoder.layers.1.mlp.linear_fc1";

const Fp8Recipe kRecipes[] = {
    Fp8Recipe::kDelayed, Fp8Recipe::kCurrent, Fp8Recipe::kBlockwise, Fp8Recipe::kMxfp8};

Parallel tensor_parallel(bool sequence_parallel) {
  return {.world = world(), .tp = world(), .dp = {}, .sequence_parallel = sequence_parallel};
}

Blueprint blueprint(Fp8Recipe recipe, const Parallel& parallel, std::int64_t bf16_ends = 0) {
  Blueprint result;
  result.model.layers = 4;
  result.parallel = parallel;
  result.parts = std::make_shared<const megatron_mini::Parts>(megatron_mini::plain_parts());
  result.fp8 = Fp8Config{.recipe = recipe, .history = 2, .bf16_ends = bf16_ends};
  return result;
}

// Numbers of very different sizes, the same on every rank.
at::Tensor numbers(std::initializer_list<std::int64_t> sizes, int seed) {
  at::manual_seed(static_cast<std::uint64_t>(seed));
  const auto options = at::TensorOptions(at::kDouble);
  return at::randn(sizes, options) * at::exp2(at::randint(-6, 3, sizes, options));
}

at::Tensor own(const at::Tensor& whole, std::int64_t dim) {
  return whole.chunk(world().size, dim)[static_cast<std::size_t>(world().rank)];
}

struct Passed {
  at::Tensor output;
  at::Tensor input_gradient;
  at::Tensor weight_gradient;
};

// A linear as the whole of a model, so that its histories can be rolled.
template <class Linear>
class Model : public torch::nn::Module {
 public:
  Model(Fp8Recipe recipe, const Parallel& parallel, const at::Tensor& weight)
      : linear(register_module(
            "linear",
            std::make_shared<Linear>(kFeatures, kFeatures, blueprint(recipe, parallel), kPath))),
        parallel_(parallel) {
    to(at::kDouble);
    const at::NoGradGuard no_grad;
    this->weight().copy_(weight);
  }

  at::Tensor weight() const { return linear->named_parameters()["weight"]; }

  Passed step(const at::Tensor& input, const at::Tensor& gradient) {
    const at::Tensor leaf = input.clone().requires_grad_(true);
    weight().mutable_grad().reset();
    const at::Tensor output = linear->forward(leaf);
    output.backward(gradient);
    roll_fp8_histories(*this, parallel_);
    return {output.detach(), leaf.grad(), weight().grad()};
  }

  std::shared_ptr<Linear> linear;

 private:
  Parallel parallel_;
};

void expect_close(const at::Tensor& actual, const at::Tensor& expected, const std::string& what) {
  EXPECT_TRUE(actual.allclose(expected, 1e-12, 1e-12)) << what;
}

// Cuts the rank's part out of a whole tensor.
enum class Part { kAll, kOfRows, kOfFeatures };

at::Tensor part_of(const at::Tensor& whole, Part part) {
  return part == Part::kAll ? whole : own(whole, part == Part::kOfRows ? 0 : 2);
}

// In f64 only the order of summation differs, so another code, or a scale that is not the whole
// tensor's, would show. There are three steps, so that delayed scales follow from earlier steps.
template <class Linear>
void compare_with_one_rank(Fp8Recipe recipe, bool sequence_parallel, bool splits_outputs) {
  const Part outer = sequence_parallel ? Part::kOfRows : Part::kAll;
  const Part of_input = splits_outputs ? outer : Part::kOfFeatures;
  const Part of_output = splits_outputs ? Part::kOfFeatures : outer;
  const std::int64_t of_weight = splits_outputs ? 0 : 1;
  const at::Tensor weight = numbers({kFeatures, kFeatures}, 1);
  Model<Linear> one(recipe, {}, weight);
  Model<Linear> many(recipe, tensor_parallel(sequence_parallel), own(weight, of_weight));
  for (int step = 0; step < 3; ++step) {
    const std::string what =
        name_of(recipe) + (sequence_parallel ? " sp" : "") + " step " + std::to_string(step) + ": ";
    const at::Tensor input = numbers({kRows, 2, kFeatures}, 10 + step);
    const at::Tensor gradient = numbers({kRows, 2, kFeatures}, 20 + step);
    const Passed expected = one.step(input, gradient);
    const Passed passed = many.step(part_of(input, of_input), part_of(gradient, of_output));
    expect_close(passed.output, part_of(expected.output, of_output), what + "output");
    expect_close(passed.input_gradient, part_of(expected.input_gradient, of_input), what + "dX");
    expect_close(passed.weight_gradient, own(expected.weight_gradient, of_weight), what + "dW");
  }
}

TEST(Fp8Linear, ColumnParallelComputesWhatOneRankDoes) {
  for (const Fp8Recipe recipe : kRecipes) {
    for (const bool sequence_parallel : {false, true}) {
      compare_with_one_rank<ColumnParallelLinear>(recipe, sequence_parallel, true);
    }
  }
}

TEST(Fp8Linear, RowParallelComputesWhatOneRankDoes) {
  for (const Fp8Recipe recipe : kRecipes) {
    for (const bool sequence_parallel : {false, true}) {
      compare_with_one_rank<RowParallelLinear>(recipe, sequence_parallel, false);
    }
  }
}

TEST(Fp8Linear, QuantisationChangesTheOutput) {
  const at::Tensor weight = numbers({kFeatures, kFeatures}, 1);
  const at::Tensor input = numbers({kRows, 2, kFeatures}, 2);
  for (const Fp8Recipe recipe : kRecipes) {
    Model<ColumnParallelLinear> model(recipe, {}, weight);
    const at::NoGradGuard no_grad;
    const at::Tensor exact = at::linear(input, weight);
    const at::Tensor error = model.linear->forward(input) - exact;
    const double relative = (error.norm() / exact.norm()).item<double>();
    EXPECT_GT(relative, 0.01) << name_of(recipe);
    EXPECT_LT(relative, 0.2) << name_of(recipe);
  }
}

// Every rank has a part of [rows, features]; its scales are those of the whole tensor's blocks.
TEST(Fp8Quantiser, ScalesAreThoseOfTheWholeTensor) {
  const at::Tensor whole = numbers({kRows, kFeatures}, 3);
  for (const Fp8Recipe recipe : {Fp8Recipe::kCurrent, Fp8Recipe::kBlockwise, Fp8Recipe::kMxfp8}) {
    Fp8Quantiser alone({.recipe = recipe}, {});
    Fp8Quantiser shared({.recipe = recipe}, {.holders = {world()}});
    const auto expected = alone.quantise(whole);
    const auto found = shared.quantise(own(whole, 1));
    const bool one_scale = expected.scale.dim() == 0;
    const at::Tensor scale = expected.scale.to(at::kFloat);
    EXPECT_TRUE(found.scale.to(at::kFloat).equal(one_scale ? scale : own(scale, 1)));
    EXPECT_TRUE(found.values.equal(own(expected.values, 1))) << name_of(recipe);
  }
}

// Symptom: clean runs alarmed at scales of gradients under a loss mask. Blocks of masked tokens had
// scale 1, millions of times the others.
TEST(Fp8Quantiser, BlocksOfNothingButZerosHaveTheSmallestScale) {
  for (const Fp8Recipe recipe : {Fp8Recipe::kBlockwise, Fp8Recipe::kMxfp8}) {
    Fp8Quantiser quantiser({.recipe = recipe},
                           {.format = at::kFloat8_e5m2, .is_gradient = true, .holders = {}});
    const auto result = quantiser.quantise(at::zeros({1, 4}));
    EXPECT_EQ(result.scale.to(at::kFloat).item<float>(), 0x1p-127F) << name_of(recipe);
    EXPECT_TRUE(result.values.equal(at::zeros({1, 4})));
  }
}

// The rank's own numbers are 1 + its rank.
TEST(Fp8Quantiser, HistoriesHoldTheLargestMagnitudeOfAllRanksAndSteps) {
  Model<RowParallelLinear> model(Fp8Recipe::kDelayed,
                                 tensor_parallel(false),
                                 at::ones({kFeatures, own(at::ones(kFeatures), 0).size(0)}));
  auto& input = *model.linear->fp8()->quantisers()[0];
  const auto largest = static_cast<float>(world().size);
  for (const float factor : {1.0F, 3.0F, 2.0F}) {
    const at::Tensor mine = at::full({kRows, 1, kFeatures / world().size},
                                     factor * static_cast<float>(1 + world().rank),
                                     at::kDouble);
    static_cast<void>(model.step(-mine, at::ones({kRows, 1, kFeatures}, at::kDouble)));
    EXPECT_EQ(input.history()[0].item<float>(), factor * largest);
  }
  EXPECT_EQ(input.history()[1].item<float>(), 3.0F * largest);
  EXPECT_EQ(input.quantise(at::ones({1}, at::kDouble)).scale.item<float>(),
            3.0F * largest / 448.0F);
}

TEST(Fp8Linear, FirstAndLastLayersMayStayAsTheyAre) {
  const auto is_fp8 = [](int layer) {
    const std::string path = "decoder.layers." + std::to_string(layer) + ".mlp.linear_fc1";
    const Blueprint plan = blueprint(Fp8Recipe::kCurrent, {}, 1);
    return plan.parts->fp8(megatron_mini::LinearSplit::kOutputs, plan, path) != nullptr;
  };
  EXPECT_FALSE(is_fp8(0));
  EXPECT_TRUE(is_fp8(1));
  EXPECT_TRUE(is_fp8(2));
  EXPECT_FALSE(is_fp8(3));
}

TEST(Fp8Linear, BlocksThatTensorParallelismWouldCutAreRefused) {
  Blueprint cut = blueprint(Fp8Recipe::kBlockwise, tensor_parallel(false));
  cut.model.hidden = cut.model.ffn = 128;
  cut.model.heads = cut.model.query_groups = 8;
  try {
    check_fp8(cut);
    FAIL() << "accepted";
  } catch (const megatron_mini::UsageError& error) {
    EXPECT_THAT(std::string(error.what()),
                ::testing::AllOf(
                    ::testing::HasSubstr(std::to_string(128 / world().size) + " of hidden 128"),
                    ::testing::HasSubstr("blocks of 128")));
  }
  cut.fp8->recipe = Fp8Recipe::kMxfp8;
  EXPECT_NO_THROW(check_fp8(cut));
}

}  // namespace
