// megatron_mini's FP8 against numpy and gfloat, on one rank; fp8_test.cpp compares one rank with
// several.
#include "codecs/emulated_cases.h"
#include "fp8_quantiser.h"
#include "layers.h"
#include "plain_parts.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>
#include <string>

namespace {

using megatron_mini::Blueprint;
using megatron_mini::Fp8Config;
using megatron_mini::Fp8Quantiser;
using megatron_mini::Fp8Recipe;
using ttrace::testing::difference;
using ttrace::testing::emulated_cases;
using ttrace::testing::EmulatedCase;

Fp8Config config_of(const EmulatedCase& one) {
  for (const Fp8Recipe recipe :
       {Fp8Recipe::kDelayed, Fp8Recipe::kCurrent, Fp8Recipe::kBlockwise, Fp8Recipe::kMxfp8}) {
    if (name_of(recipe) == one.recipe) {
      return {.recipe = recipe, .history = 2, .bf16_ends = 0};
    }
  }
  throw std::runtime_error(one.recipe + " is no recipe");
}

Fp8Quantiser quantiser_of(const EmulatedCase& one) {
  const bool is_gradient = one.format == "e5m2";
  return {config_of(one),
          {.format = is_gradient ? at::kFloat8_e5m2 : at::kFloat8_e4m3fn,
           .is_weight = one.is_weight,
           .is_gradient = is_gradient,
           .holders = {}}};
}

TEST(Fp8AgainstGfloat, OperandsHaveItsScalesAndValues) {
  for (const EmulatedCase& one : emulated_cases(TTRACE_EMULATED_LINEAR, "quantised")) {
    const auto result = quantiser_of(one).quantise(one["x"].to(at::kFloat));
    EXPECT_EQ(difference(result.scale.to(at::kFloat), one["scale"]), "") << one.name();
    EXPECT_EQ(difference(result.values, one["values"]), "") << one.name();
  }
}

// Symptom: finite numbers became NaN in E4M3 and infinity in E5M2 where the quotient by an old
// scale was beyond float32, instead of the largest number.
TEST(Fp8AgainstGfloat, DelayedScalesSaturateAsItDoes) {
  for (const EmulatedCase& one : emulated_cases(TTRACE_EMULATED_LINEAR, "delayed")) {
    Fp8Quantiser quantiser = quantiser_of(one);
    for (const std::string step : {"0", "1"}) {
      const auto result = quantiser.quantise(one["x" + step].to(at::kFloat));
      EXPECT_EQ(difference(result.scale, one["scale" + step]), "")
          << one.name() << " step " << step;
      EXPECT_EQ(difference(result.values, one["values" + step]), "")
          << one.name() << " step " << step;
      quantiser.roll(quantiser.collected());
    }
  }
}

template <class Linear>
void expect_linear_of(const EmulatedCase& one) {
  Blueprint blueprint;
  blueprint.model.layers = 1;
  blueprint.parts = std::make_shared<const megatron_mini::Parts>(megatron_mini::plain_parts());
  blueprint.fp8 = config_of(one);
  Linear linear(
      one["weight"].size(1), one["weight"].size(0), blueprint, "decoder.layers.0.mlp.linear_fc1");
  linear.to(at::kDouble);
  const auto parameters = linear.named_parameters();
  {
    const at::NoGradGuard no_grad;
    parameters["weight"].copy_(one["weight"]);
    parameters["bias"].copy_(one["bias"]);
  }
  const at::Tensor x = one["x"].unsqueeze(1).clone().requires_grad_(true);
  const at::Tensor y = linear.forward(x);
  y.backward(one["gradient"].unsqueeze(1));
  const auto expect_close = [&](const at::Tensor& found, const std::string& name) {
    EXPECT_TRUE(found.reshape(one[name].sizes()).allclose(one[name], 1e-12, 1e-12))
        << one.name() << ": " << name;
  };
  expect_close(y, "y");
  expect_close(x.grad(), "grad_x");
  expect_close(parameters["weight"].grad(), "grad_weight");
  expect_close(parameters["bias"].grad(), "grad_bias");
}

TEST(Fp8AgainstGfloat, LinearsMultiplyItsValuesForwardAndBackward) {
  for (const EmulatedCase& one : emulated_cases(TTRACE_EMULATED_LINEAR, "linear")) {
    expect_linear_of<megatron_mini::ColumnParallelLinear>(one);
    expect_linear_of<megatron_mini::RowParallelLinear>(one);
  }
}

}  // namespace
