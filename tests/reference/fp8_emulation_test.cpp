// The reference's FP8 against numpy and gfloat.
#include "codecs/emulated_cases.h"
#include "reference/fp8.h"
#include "reference/layers.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <string>

namespace ttrace::reference {
namespace {

using ttrace::testing::difference;
using ttrace::testing::emulated_cases;
using ttrace::testing::EmulatedCase;

Fp8Config config_of(const EmulatedCase& one) {
  for (const Fp8Recipe recipe :
       {Fp8Recipe::kDelayed, Fp8Recipe::kCurrent, Fp8Recipe::kBlockwise, Fp8Recipe::kMxfp8}) {
    if (to_string(recipe) == one.recipe) {
      return {.recipe = recipe, .history = 2, .bf16_ends = 0};
    }
  }
  throw std::runtime_error(one.recipe + " is no recipe");
}

Fp8Operand operand_of(const EmulatedCase& one) {
  return {
      one.format == "e4m3" ? Fp8Format::kE4M3 : Fp8Format::kE5M2, one.is_weight, config_of(one)};
}

TEST(Fp8AgainstGfloat, OperandsHaveItsScalesAndValues) {
  for (const EmulatedCase& one : emulated_cases(TTRACE_EMULATED_LINEAR, "quantised")) {
    const Quantised result = operand_of(one).quantise(one["x"].to(at::kFloat));
    EXPECT_EQ(difference(result.scale.to(at::kFloat), one["scale"]), "") << one.name();
    EXPECT_EQ(difference(result.values, one["values"]), "") << one.name();
  }
}

// Symptom: finite numbers became NaN in E4M3 and infinity in E5M2 where the quotient by an old
// scale was beyond float32, instead of the largest number.
TEST(Fp8AgainstGfloat, DelayedScalesSaturateAsItDoes) {
  for (const EmulatedCase& one : emulated_cases(TTRACE_EMULATED_LINEAR, "delayed")) {
    Fp8Operand operand = operand_of(one);
    for (const std::string step : {"0", "1"}) {
      const Quantised result = operand.quantise(one["x" + step].to(at::kFloat));
      EXPECT_EQ(difference(result.scale, one["scale" + step]), "")
          << one.name() << " step " << step;
      EXPECT_EQ(difference(result.values, one["values" + step]), "")
          << one.name() << " step " << step;
      operand.end_step();
    }
  }
}

TEST(Fp8AgainstGfloat, LinearsMultiplyItsValuesForwardAndBackward) {
  for (const EmulatedCase& one : emulated_cases(TTRACE_EMULATED_LINEAR, "linear")) {
    Linear linear(one["weight"].size(1), one["weight"].size(0), at::kDouble);
    {
      const at::NoGradGuard no_grad;
      linear.weight.copy_(one["weight"]);
      linear.bias.copy_(one["bias"]);
    }
    linear.use_fp8(config_of(one));
    const at::Tensor x = one["x"].unsqueeze(1).clone().requires_grad_(true);
    const at::Tensor y = linear.forward(x);
    y.backward(one["gradient"].unsqueeze(1));
    const auto expect_close = [&](const at::Tensor& found, const std::string& name) {
      EXPECT_TRUE(found.reshape(one[name].sizes()).allclose(one[name], 1e-12, 1e-12))
          << one.name() << ": " << name;
    };
    expect_close(y, "y");
    expect_close(x.grad(), "grad_x");
    expect_close(linear.weight.grad(), "grad_weight");
    expect_close(linear.bias.grad(), "grad_bias");
  }
}

}  // namespace
}  // namespace ttrace::reference
