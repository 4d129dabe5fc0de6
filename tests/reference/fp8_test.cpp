// The reference's FP8 operands against values found by hand.
#include "reference/fp8.h"

#include "reference/layers.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace ttrace::reference {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

Fp8Operand operand(Fp8Recipe recipe, Fp8Format format, bool is_weight = false) {
  return {format, is_weight, {.recipe = recipe, .history = 2, .bf16_ends = 0}};
}

Quantised quantised(Fp8Recipe recipe, Fp8Format format, const at::Tensor& x) {
  return operand(recipe, format).quantise(x);
}

std::vector<float> list(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.to(at::kFloat).contiguous();
  return {flat.const_data_ptr<float>(), flat.const_data_ptr<float>() + flat.numel()};
}

// 0.3 / 2^-7 is 38.4; between 32 and 64 the numbers of E4M3 are 4 apart.
TEST(Fp8, CurrentScaleMakesTheLargestMagnitudeTheLargestNumber) {
  const Quantised result =
      quantised(Fp8Recipe::kCurrent, Fp8Format::kE4M3, at::tensor({1.0F, -3.5F, 0.3F}));
  EXPECT_EQ(result.scale.item<float>(), 3.5F / 448.0F);
  EXPECT_EQ(list(result.values), (std::vector<float>{1.0F, -3.5F, 0.3125F}));
}

// 1.3 * 2^13 is 10649.6; between 8192 and 16384 the numbers of E5M2 are 2048 apart.
TEST(Fp8, GradientsAreRoundedToE5M2) {
  const Quantised result =
      quantised(Fp8Recipe::kCurrent, Fp8Format::kE5M2, at::tensor({7.0F, 1.3F}));
  EXPECT_EQ(result.scale.item<float>(), 7.0F / 57344.0F);
  EXPECT_EQ(list(result.values), (std::vector<float>{7.0F, 1.25F}));
}

TEST(Fp8, DelayedScaleFollowsFromTheLastSteps) {
  Fp8Operand input = operand(Fp8Recipe::kDelayed, Fp8Format::kE4M3);
  EXPECT_EQ(input.quantise(at::tensor({3.5F, 1.0F})).scale.item<float>(), 1.0F);
  EXPECT_EQ(input.quantise(at::tensor({-2.0F, 1.0F})).scale.item<float>(), 1.0F);
  input.end_step();
  EXPECT_EQ(list(input.amax_history()), (std::vector<float>{3.5F, 0.0F}));

  const Quantised saturated = input.quantise(at::tensor({7.0F, 1.0F}));
  EXPECT_EQ(saturated.scale.item<float>(), 3.5F / 448.0F);
  EXPECT_EQ(list(saturated.values), (std::vector<float>{3.5F, 1.0F}));
  input.end_step();
  EXPECT_EQ(list(input.amax_history()), (std::vector<float>{7.0F, 3.5F}));

  EXPECT_EQ(input.quantise(at::tensor({0.5F})).scale.item<float>(), 7.0F / 448.0F);
  input.end_step();
  EXPECT_EQ(input.quantise(at::tensor({0.5F})).scale.item<float>(), 7.0F / 448.0F);
  input.end_step();
  EXPECT_EQ(list(input.amax_history()), (std::vector<float>{0.5F, 0.5F}));
}

TEST(Fp8, DelayedGradientsAreScaledByThemselvesBeforeThereIsAHistory) {
  Fp8Operand gradient = operand(Fp8Recipe::kDelayed, Fp8Format::kE5M2);
  EXPECT_EQ(gradient.quantise(at::tensor({7.0F})).scale.item<float>(), 7.0F / 57344.0F);
  EXPECT_EQ(gradient.quantise(at::tensor({14.0F})).scale.item<float>(), 14.0F / 57344.0F);
  gradient.end_step();
  EXPECT_EQ(gradient.quantise(at::tensor({7.0F})).scale.item<float>(), 14.0F / 57344.0F);
}

// 3 / 448 lies between 2^-8 and 2^-7, 1 / 448 between 2^-9 and 2^-8; 3.5 / 448 is 2^-7.
TEST(Fp8, BlocksHavePowersOfTwoThatSaturateNothing) {
  at::Tensor x = at::zeros({1, 2, 200});
  x[0][0][127] = -3.0F;
  x[0][0][128] = 1.0F;
  x[0][1][0] = 3.5F;
  const Quantised result = quantised(Fp8Recipe::kBlockwise, Fp8Format::kE4M3, x);
  EXPECT_EQ(result.scale.scalar_type(), at::kFloat8_e8m0fnu);
  EXPECT_EQ(result.scale.sizes(), (std::vector<std::int64_t>{1, 2, 2}));
  EXPECT_EQ(list(result.scale), (std::vector<float>{0x1p-7F, 0x1p-8F, 0x1p-7F, 0x1p-127F}));
  EXPECT_TRUE(result.values.equal(x));
}

TEST(Fp8, BlocksOfAWeightAreSquare) {
  at::Tensor weight = at::full({129, 130}, 0.4375F);
  weight[0][129] = 1.75F;
  weight[128][0] = 7.0F;
  const Quantised result = operand(Fp8Recipe::kBlockwise, Fp8Format::kE4M3, true).quantise(weight);
  EXPECT_EQ(result.scale.sizes(), (std::vector<std::int64_t>{2, 2}));
  EXPECT_EQ(list(result.scale), (std::vector<float>{0x1p-10F, 0x1p-8F, 0x1p-6F, 0x1p-10F}));
  EXPECT_TRUE(result.values.equal(weight));
}

TEST(Fp8, MicroscalingHasBlocksOf32AlongRows) {
  at::Tensor weight = at::full({2, 64}, 0.4375F);
  weight[1][32] = 7.0F;
  const Quantised result = operand(Fp8Recipe::kMxfp8, Fp8Format::kE4M3, true).quantise(weight);
  EXPECT_EQ(list(result.scale), (std::vector<float>{0x1p-10F, 0x1p-10F, 0x1p-10F, 0x1p-6F}));
}

TEST(Fp8, WhatIsNotFiniteStaysSoAndCountsInNoAmax) {
  const at::Tensor x = at::tensor({kNan, kInfinity, -kInfinity, 1.75F});
  for (const Fp8Recipe recipe : {Fp8Recipe::kCurrent, Fp8Recipe::kBlockwise, Fp8Recipe::kMxfp8}) {
    const Quantised forward = quantised(recipe, Fp8Format::kE4M3, x);
    EXPECT_EQ(forward.scale.to(at::kFloat).item<float>(), 0x1p-8F);
    EXPECT_TRUE(forward.values.narrow(0, 0, 3).isnan().all().item<bool>()) << forward.values;
    EXPECT_EQ(forward.values[3].item<float>(), 1.75F);
    const auto backward = list(quantised(recipe, Fp8Format::kE5M2, x).values);
    EXPECT_TRUE(std::isnan(backward[0]));
    EXPECT_EQ(backward[1], kInfinity);
    EXPECT_EQ(backward[2], -kInfinity);
    EXPECT_EQ(backward[3], 1.75F);
  }
}

TEST(Fp8, NothingButZerosHasScaleOne) {
  const Quantised result = quantised(Fp8Recipe::kCurrent, Fp8Format::kE5M2, at::zeros({1, 4}));
  EXPECT_EQ(result.scale.item<float>(), 1.0F);
  EXPECT_TRUE(result.values.equal(at::zeros({1, 4})));
}

// Symptom: clean runs alarmed at scales of gradients under a loss mask. Blocks of masked tokens had
// scale 1, millions of times the others, which data-parallel ranks multiplied like a gradient.
TEST(Fp8, BlocksOfNothingButZerosHaveTheSmallestScale) {
  for (const Fp8Recipe recipe : {Fp8Recipe::kBlockwise, Fp8Recipe::kMxfp8}) {
    const Quantised result = quantised(recipe, Fp8Format::kE5M2, at::zeros({1, 4}));
    EXPECT_EQ(result.scale.to(at::kFloat).item<float>(), 0x1p-127F);
    EXPECT_TRUE(result.values.equal(at::zeros({1, 4})));
  }
}

// y = X W^T + b with X, W, dY quantised in all three products, and db from dY as it comes.
TEST(Fp8, AllThreeProductsOfALinearUseQuantisedOperands) {
  at::manual_seed(1);
  Linear linear(8, 4, at::kFloat);
  {
    const at::NoGradGuard no_grad;
    linear.weight.normal_();
    linear.bias.normal_();
  }
  linear.use_fp8({.recipe = Fp8Recipe::kCurrent});
  const at::Tensor x = at::randn({3, 2, 8}).requires_grad_(true);
  const at::Tensor gradient = at::randn({3, 2, 4});
  const at::Tensor y = linear.forward(x);
  y.backward(gradient);

  const at::Tensor xq = quantised(Fp8Recipe::kCurrent, Fp8Format::kE4M3, x).values;
  const at::Tensor wq = quantised(Fp8Recipe::kCurrent, Fp8Format::kE4M3, linear.weight).values;
  const at::Tensor gq = quantised(Fp8Recipe::kCurrent, Fp8Format::kE5M2, gradient).values;
  const at::Tensor dw = at::matmul(gq.flatten(0, 1).t(), xq.flatten(0, 1));
  EXPECT_TRUE(y.allclose(at::matmul(xq, wq.t()) + linear.bias));
  EXPECT_TRUE(x.grad().allclose(at::matmul(gq, wq)));
  EXPECT_TRUE(linear.weight.grad().allclose(dw, 1e-4, 1e-5));
  EXPECT_TRUE(linear.bias.grad().allclose(gradient.sum({0, 1})));
  EXPECT_FALSE(y.allclose(at::matmul(x, linear.weight.t()) + linear.bias, 1e-3, 1e-3));
}

}  // namespace
}  // namespace ttrace::reference
