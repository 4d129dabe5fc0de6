// Graded mutants: exact where they act, and nothing where they do not.
#include "faults/mutants.h"

#include "error.h"
#include "faults/attention_faults.h"
#include "layers.h"
#include "mini_program.h"
#include "plain_parts.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <typeinfo>
#include <vector>

namespace {

using megatron_mini::Group;
using megatron_mini::OptimizerConfig;
using megatron_mini::Parts;
using megatron_mini::faults::Mutant;
using megatron_mini::faults::ProductMutant;
using megatron_mini::testing::kBadInput;
using megatron_mini::testing::MiniProgram;
using megatron_mini::testing::steps_of;
using ::testing::HasSubstr;

const Group kLast = {.name = "tp", .rank = 1, .size = 2};
const Group kFirst = {.name = "tp", .rank = 0, .size = 2};

// [s, b, in] and [out, in] in FP64, both with gradients.
std::vector<at::Tensor> operands() {
  return {at::arange(24.0, at::kDouble).sin().view({4, 2, 3}).requires_grad_(true),
          at::arange(15.0, at::kDouble).cos().view({5, 3}).requires_grad_(true)};
}

TEST(ProductMutant, ScalesTheOutputAndOneRowOfIt) {
  const auto x = operands();
  const at::Tensor right = at::linear(x[0], x[1]);
  const at::Tensor wrong = ProductMutant{.output = 1.5, .middle_row = 2.0}.product(x[0], x[1]);
  at::Tensor factors = at::full({4, 2, 1}, 1.5, at::kDouble);
  factors[2][0] = 3.0;
  EXPECT_TRUE(wrong.allclose(right * factors, 1e-14));
}

TEST(ProductMutant, ScalesNoMoreThanTheWeightsGradient) {
  const auto right = operands();
  at::linear(right[0], right[1]).square().sum().backward();
  const auto wrong = operands();
  const at::Tensor output = ProductMutant{.weight_gradient = 1.25}.product(wrong[0], wrong[1]);
  EXPECT_TRUE(output.equal(at::linear(right[0], right[1])));
  output.square().sum().backward();
  EXPECT_TRUE(wrong[0].grad().allclose(right[0].grad(), 1e-14));
  EXPECT_TRUE(wrong[1].grad().allclose(right[1].grad() * 1.25, 1e-14));
}

// A factor of 1.001 is less than half a step of BF16, so that a product that is scaled after its
// rounding would not change at all.
TEST(ProductMutant, ScalesBeforeItRounds) {
  const at::Tensor x = at::arange(2048.0).sin().view({16, 4, 32}).to(at::kBFloat16);
  const at::Tensor w = at::arange(2048.0).cos().view({64, 32}).to(at::kBFloat16);
  const at::Tensor right = at::linear(x, w).to(at::kDouble);
  const at::Tensor wrong = ProductMutant{.output = 1.001}.product(x, w).to(at::kDouble);
  const double factor = (wrong * right).sum().item<double>() / right.square().sum().item<double>();
  EXPECT_NEAR(factor, 1.001, 2e-4);
}

TEST(Mutant, ActsInItsLayerAndOnItsRank) {
  const Mutant mutant = Mutant::named("partial_sum", 0.25, 1);
  EXPECT_EQ(mutant.of_linear("decoder.layers.1.mlp.linear_fc2", kLast).output, 0.75);
  EXPECT_FALSE(mutant.of_linear("decoder.layers.1.mlp.linear_fc2", kFirst).acts());
  EXPECT_FALSE(mutant.of_linear("decoder.layers.11.mlp.linear_fc2", kLast).acts());
  EXPECT_FALSE(mutant.of_linear("decoder.layers.1.self_attention.linear_proj", kLast).acts());
}

Parts parts_with(const Mutant& mutant) {
  Parts parts = megatron_mini::plain_parts();
  mutant.plant(parts);
  return parts;
}

// The context of fixed queries, keys and values.
at::Tensor attended(megatron_mini::CoreAttention& attention) {
  const at::Tensor all = at::arange(18.0, at::kDouble).sin().view({3, 3, 1, 1, 2});
  return attention.forward(all[0], all[1], all[2]);
}

TEST(Mutant, ScalesTheScoresOfItsLayer) {
  const Parts parts = parts_with(Mutant::named("softmax_scale", 0.25, 1));
  megatron_mini::Blueprint blueprint;
  blueprint.parts = std::make_shared<const Parts>(parts);
  const auto context = [&](const std::string& layer) {
    const std::string path = "decoder.layers." + layer + ".self_attention.core_attention";
    return attended(*parts.core_attention({}, blueprint, path));
  };
  megatron_mini::CoreAttention right;
  megatron_mini::faults::ScalesScores wrong(1.25);
  EXPECT_TRUE(context("0").equal(attended(right)));
  EXPECT_TRUE(context("1").equal(attended(wrong)));
  EXPECT_FALSE(attended(right).equal(attended(wrong)));
}

// The gradient of the norm's weight.
at::Tensor norm_gradient(const Parts& parts, const Group& tp, const std::string& path) {
  megatron_mini::Blueprint blueprint;
  blueprint.parallel.tp = tp;
  blueprint.model.hidden = 4;
  blueprint.model.norm_epsilon = 1e-5;
  const auto norm = parts.norm(blueprint, path);
  norm->forward(at::arange(24.0).sin().view({6, 1, 4})).square().sum().backward();
  return norm->parameters()[0].grad();
}

TEST(Mutant, LeavesAShareOfTheLastRanksNormGradientOut) {
  const Parts parts = parts_with(Mutant::named("norm_grad_shard", 0.25, 0));
  const std::string path = "decoder.layers.0.input_layernorm";
  const at::Tensor right = norm_gradient(megatron_mini::plain_parts(), kLast, path);
  EXPECT_TRUE(norm_gradient(parts, kLast, path).equal(right * 0.75));
  EXPECT_TRUE(norm_gradient(parts, kFirst, path).equal(right));
  EXPECT_TRUE(norm_gradient(parts, kLast, "decoder.layers.0.pre_mlp_layernorm").equal(right));
}

TEST(Mutant, OffReplacesNothing) {
  EXPECT_FALSE(Mutant().of_linear("decoder.layers.0.mlp.linear_fc2", kLast).acts());
  const Parts parts = parts_with(Mutant());
  const auto row = parts.row(2, 2, {}, "decoder.layers.0.mlp.linear_fc2");
  EXPECT_TRUE(typeid(*row) == typeid(megatron_mini::RowParallelLinear));
  const std::string path = "decoder.layers.0.input_layernorm";
  EXPECT_TRUE(norm_gradient(parts, kLast, path)
                  .equal(norm_gradient(megatron_mini::plain_parts(), kLast, path)));
}

// One AdamW update of one element, after its moments' own step.
double updated(const OptimizerConfig& config, double p, double m, double v, double t) {
  const double c1 = 1.0 - std::pow(config.beta1, t);
  const double c2 = 1.0 - std::pow(config.beta2, t);
  p *= 1.0 - config.learning_rate * config.weight_decay;
  return p - config.learning_rate * (m / c1) / (std::sqrt(v / c2) + config.epsilon);
}

TEST(Mutant, BiasCorrectionIsThatOfAnotherStep) {
  const OptimizerConfig config{.learning_rate = 1e-2,
                               .beta1 = 0.9,
                               .beta2 = 0.95,
                               .epsilon = 1e-3,
                               .weight_decay = 0.1,
                               .clip = 1.0};
  const Mutant mutant = Mutant::named("optimizer_bias_correction", 1.0, 0);
  EXPECT_NEAR(updated(mutant.optimizer(config, 3), 0.7, 0.2, 0.05, 3.0),
              updated(config, 0.7, 0.2, 0.05, 6.0),
              1e-15);
  EXPECT_NEAR(Mutant::named("optimizer_beta1", 0.5, 0).optimizer(config, 1).beta1, 0.45, 1e-15);
}

TEST(Mutant, IsRefusedWhereItCannotBe) {
  EXPECT_THROW(static_cast<void>(Mutant::named("operator-scale", 0.1, 0)),
               megatron_mini::UsageError);
  EXPECT_THROW(static_cast<void>(Mutant::named("partial_sum", 1.5, 0)), megatron_mini::UsageError);
  EXPECT_THROW(static_cast<void>(Mutant::named("row", -0.1, 0)), megatron_mini::UsageError);
  const MiniProgram program;
  const auto no_layer = program.run(1, "--mutant row --mutant-size 0.1 --mutant-layer 2");
  EXPECT_EQ(no_layer.exit_code, kBadInput);
  EXPECT_THAT(no_layer.err, HasSubstr("0 to 1"));
  EXPECT_EQ(program.run(1, "--mutant row").exit_code, kBadInput);
  EXPECT_THAT(program.run(1, "--mutant norm_grad_shard --mutant-size 0.1").err, HasSubstr("--sp"));
  // Both would replace the same linear.
  const auto two = program.run(1, "--bug scaled-linear --mutant row --mutant-size 0.1");
  EXPECT_EQ(two.exit_code, kBadInput);
  EXPECT_THAT(two.err, HasSubstr("--bug scaled-linear and --mutant cannot be planted in one run"));
}

// Every mutant changes the two ranks' results, and a size of 0 changes none of their bits.
TEST(MutantRuns, EachChangesWhatItIsToChange) {
  const MiniProgram program({{"precision", "f32"}});
  const std::string layout = "--tp 2 --sp --digest ";
  const auto clean = steps_of(program, 2, layout);
  ASSERT_EQ(clean.size(), 1U);
  for (const std::string& name : Mutant::names()) {
    SCOPED_TRACE(name);
    const auto something =
        steps_of(program, 2, layout + "--mutant-layer 1 --mutant-size 0.3 --mutant " + name);
    ASSERT_EQ(something.size(), 1U);
    EXPECT_NE(something[0].digest, clean[0].digest);
    EXPECT_EQ(something[0].loss == clean[0].loss,
              name.find("grad") != std::string::npos || name.starts_with("optimizer_"));
  }
}

}  // namespace
