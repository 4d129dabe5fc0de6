// The rules that people use today, against values computed by hand.
#include "support/today_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace ttrace::testing {
namespace {

using ::testing::ElementsAre;

std::array<bool, kRules> failing(const std::vector<float>& reference,
                                 const std::vector<float>& candidate,
                                 double depth_bound = 1.0,
                                 ElementType type = ElementType::kF32) {
  return failing_rules({.type = type,
                        .reference_type = ElementType::kF32,
                        .reference = reference.data(),
                        .candidate_type = ElementType::kF32,
                        .candidate = candidate.data(),
                        .count = static_cast<std::int64_t>(reference.size()),
                        .depth_bound = depth_bound});
}

// Order: assert_close, cosine, frobenius, sglang, depth_bound.

TEST(TodayRules, EqualTensorsPassAll) {
  EXPECT_THAT(failing({1, 2, 3}, {1, 2, 3}, 0.0), ElementsAre(false, false, false, false, false));
}

TEST(TodayRules, TensorsOfZerosPassAll) {
  EXPECT_THAT(failing({0, 0}, {0, 0}, 0.0), ElementsAre(false, false, false, false, false));
}

TEST(TodayRules, HalfAPercentFailsTheElementwiseRuleAlone) {
  // relative Frobenius error 0.01 / sqrt(5) = 0.0045; 1 - 2 * 5.02 / (5 + 5.0401) = 1e-5
  EXPECT_THAT(failing({1, 2}, {1, 2.01F}, 0.0045), ElementsAre(true, false, false, false, false));
  EXPECT_THAT(failing({1, 2}, {1, 2.01F}, 0.0044), ElementsAre(true, false, false, false, true));
}

TEST(TodayRules, TwoPercentFailTheFrobeniusRule) {
  EXPECT_THAT(failing({1, 2}, {1.02F, 2.04F}), ElementsAre(true, false, true, false, false));
}

TEST(TodayRules, CosineDoesNotSeeAFactor) {
  // 1 - 2 * 10 / (5 + 20) = 0.2
  EXPECT_THAT(failing({1, 2}, {2, 4}, 1.5), ElementsAre(true, false, true, true, false));
}

TEST(TodayRules, OrthogonalTensorsFailAll) {
  EXPECT_THAT(failing({1, 0}, {0, 1}), ElementsAre(true, true, true, true, true));
}

TEST(TodayRules, SglangsThresholdIsFourPercentInTheNorm) {
  // rel_diff of a factor a is (a - 1)^2 / (a^2 + 1): 7.7e-4 for 1.04, 1.19e-3 for 1.05
  EXPECT_FALSE(failing({1, 2}, {1.04F, 2.08F})[3]);
  EXPECT_TRUE(failing({1, 2}, {1.05F, 2.1F})[3]);
}

TEST(TodayRules, AssertCloseIsAsLooseAsTheElementType) {
  const auto fails = [](float value, ElementType type) {
    return failing({1.0F}, {value}, 1.0, type)[0];
  };
  EXPECT_FALSE(fails(1.015625F, ElementType::kBF16));  // two steps of BF16; 0.016 + 1e-5 allowed
  EXPECT_TRUE(fails(1.0234375F, ElementType::kBF16));
  EXPECT_FALSE(fails(1.00001F, ElementType::kF32));  // 1.3e-6 + 1e-5 allowed
  EXPECT_TRUE(fails(1.00002F, ElementType::kF32));
  EXPECT_TRUE(fails(1.00001F, ElementType::kF64));
  EXPECT_TRUE(fails(2.0F, ElementType::kI64));
}

TEST(TodayRules, NanFailsAll) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(failing({1, 2}, {1, nan}), ElementsAre(true, true, true, true, true));
}

TEST(TodayRules, ReferenceOfZerosIsJudgedAbsolutelyByTheDepthBoundOnly) {
  EXPECT_THAT(failing({0, 0}, {1e-3F, 0}, 1e-2), ElementsAre(true, true, true, true, false));
}

TEST(DepthBound, GrowsTowardsTheFirstLayer) {
  constexpr double kEps = 0.0078125;  // of BF16
  EXPECT_DOUBLE_EQ(depth_bound("decoder.layers.1.mlp.linear_fc2", 2, "bf16"), 4 * 1.03 * kEps);
  EXPECT_DOUBLE_EQ(depth_bound("decoder.layers.0", 2, "bf16"), 4 * 1.03 * 1.03 * kEps);
  EXPECT_DOUBLE_EQ(depth_bound("embedding.word_embeddings.weight", 2, "bf16"),
                   4 * 1.03 * 1.03 * kEps);
  EXPECT_DOUBLE_EQ(depth_bound("decoder.final_layernorm", 2, "bf16"), 4 * 1.03 * kEps);
  EXPECT_DOUBLE_EQ(depth_bound("loss", 2, "bf16"), 4 * 1.03 * kEps);
}

TEST(DepthBound, TakesTheEpsilonOfThePrecisionAndOfBf16ForFp8) {
  EXPECT_DOUBLE_EQ(depth_bound("loss", 1, "f32"), 4 * 1.03 * std::exp2(-23));
  EXPECT_DOUBLE_EQ(depth_bound("loss", 1, "f64"), 4 * 1.03 * std::exp2(-52));
  EXPECT_DOUBLE_EQ(depth_bound("loss", 1, "fp8"), depth_bound("loss", 1, "bf16"));
}

}  // namespace
}  // namespace ttrace::testing
