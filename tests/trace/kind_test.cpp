#include "trace/base/kind.h"

#include <ttrace/error.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace ttrace {
namespace {

using ::testing::ElementsAre;

template <class Condition>
std::vector<Kind> kinds_where(Condition condition) {
  std::vector<Kind> kinds;
  for (const KindTraits& traits : kKindTraits) {
    if (condition(traits.kind)) {
      kinds.push_back(traits.kind);
    }
  }
  return kinds;
}

TEST(Kinds, HaveNamesThatAreReadBack) {
  for (const KindTraits& traits : kKindTraits) {
    EXPECT_EQ(parse_kind(name_of(traits.kind)), traits.kind);
  }
  EXPECT_EQ(name_of(Kind::kExpAvgSq), "exp_avg_sq");
  EXPECT_THROW(static_cast<void>(parse_kind("outputs")), FormatError);
}

TEST(Kinds, OfParametersOptimizersAndGradients) {
  EXPECT_THAT(kinds_where(is_of_parameter),
              ElementsAre(Kind::kParam,
                          Kind::kParamGrad,
                          Kind::kMainGrad,
                          Kind::kMaster,
                          Kind::kParamNext,
                          Kind::kExpAvg,
                          Kind::kExpAvgSq,
                          Kind::kState,
                          Kind::kCopy,
                          Kind::kStart,
                          Kind::kStateBefore));
  EXPECT_THAT(kinds_where(is_of_optimizer),
              ElementsAre(Kind::kParam,
                          Kind::kMainGrad,
                          Kind::kMaster,
                          Kind::kParamNext,
                          Kind::kExpAvg,
                          Kind::kExpAvgSq,
                          Kind::kState,
                          Kind::kCopy));
  EXPECT_THAT(kinds_where(is_gradient),
              ElementsAre(Kind::kGradOutput,
                          Kind::kGradInput,
                          Kind::kParamGrad,
                          Kind::kMainGrad,
                          Kind::kOperatorGrad));
  EXPECT_THAT(kinds_where(is_of_graph),
              ElementsAre(Kind::kInput,
                          Kind::kOutput,
                          Kind::kGradOutput,
                          Kind::kGradInput,
                          Kind::kParamGrad,
                          Kind::kMainGrad,
                          Kind::kOperator,
                          Kind::kOperatorGrad));
}

TEST(Kinds, ThatArePlacedMustBeEqualOrHoldSamples) {
  EXPECT_THAT(kinds_where([](Kind kind) { return !is_placed(kind); }),
              ElementsAre(Kind::kScalar,
                          Kind::kAmaxHistory,
                          Kind::kCollectiveInput,
                          Kind::kCollectiveOutput,
                          Kind::kOperators));
  EXPECT_THAT(kinds_where(must_be_equal), ElementsAre(Kind::kData, Kind::kDraw));
  EXPECT_THAT(kinds_where([](Kind kind) { return traits_of(kind).holds_samples; }),
              ElementsAre(Kind::kData,
                          Kind::kInput,
                          Kind::kOutput,
                          Kind::kGradOutput,
                          Kind::kGradInput,
                          Kind::kLoss,
                          Kind::kRouting,
                          Kind::kDraw,
                          Kind::kScale,
                          Kind::kOperand));
}

TEST(Kinds, WithAGradientScale) {
  EXPECT_THAT(
      kinds_where([](Kind kind) { return traits_of(kind).has_gradient_scale; }),
      ElementsAre(Kind::kGradOutput, Kind::kGradInput, Kind::kParamGrad, Kind::kOperatorGrad));
  EXPECT_TRUE(is_of_quantised_gradient(Kind::kOperand, kGradientSlot));
  EXPECT_FALSE(is_of_quantised_gradient(Kind::kOperand, kWeightSlot));
  EXPECT_FALSE(is_of_quantised_gradient(Kind::kOutput, kGradientSlot));
}

}  // namespace
}  // namespace ttrace
