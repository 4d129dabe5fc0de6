#include "analysis/causes/common/least_squares.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <vector>

namespace ttrace {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;

const std::array<std::vector<double>, 2> kOneAndIndex = {{{1, 1, 1, 1, 1}, {0, 1, 2, 3, 4}}};

TEST(LeastSquares, AnExactCombinationLeavesNothing) {
  const std::vector<double> target = {3, 1, -1, -3, -5};
  const auto found = fit(kOneAndIndex, target);
  ASSERT_TRUE(found);
  EXPECT_THAT(found->coefficients, ElementsAre(DoubleNear(3, 1e-12), DoubleNear(-2, 1e-12)));
  EXPECT_NEAR(found->residual, 0.0, 1e-12);
  EXPECT_THAT(found->deviations, ElementsAre(DoubleNear(0, 1e-12), DoubleNear(0, 1e-12)));
}

// Line through (0,0) (1,1) (2,0) (3,1) (4,0): by hand, intercept 0.4, slope 0, residual^2 1.2,
// s^2 = 1.2 / 3, sd of the slope sqrt(s^2 / 10).
TEST(LeastSquares, DeviationsFollowFromTheResidual) {
  const std::vector<double> target = {0, 1, 0, 1, 0};
  const auto found = fit(kOneAndIndex, target);
  ASSERT_TRUE(found);
  EXPECT_THAT(found->coefficients, ElementsAre(DoubleNear(0.4, 1e-12), DoubleNear(0, 1e-12)));
  EXPECT_NEAR(found->residual, std::sqrt(1.2), 1e-12);
  EXPECT_NEAR(found->deviations[1], std::sqrt(0.04), 1e-12);
}

TEST(LeastSquares, DependentColumnsHaveNoCoefficients) {
  const std::array<std::vector<double>, 2> columns = {{{1, 2, 3, 4}, {2, 4, 6, 8}}};
  EXPECT_FALSE(fit(columns, std::vector<double>{1, 0, 0, 1}));
}

TEST(LeastSquares, TooFewRowsHaveNoCoefficients) {
  const std::array<std::vector<double>, 2> columns = {{{1, 0, 1}, {0, 1, 1}}};
  EXPECT_FALSE(fit(columns, std::vector<double>{1, 2, 3}));
}

}  // namespace
}  // namespace ttrace
