#include "analysis/bounds/spread.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <random>
#include <vector>

namespace ttrace {
namespace {

constexpr int kPasses = 5;

// Squared errors of the passes and of a right candidate, of one tensor.
class Draws {
 public:
  explicit Draws(double freedom) : freedom_(freedom), squared_(freedom) {}

  // Of variance `variance`.
  double one(double variance = 1.0) { return variance * squared_(random_) / freedom_; }
  struct Means {
    double mean = 0.0;
    double of_squares = 0.0;
  };
  Means passes(double variance = 1.0) {
    Means means;
    for (int pass = 0; pass < kPasses; ++pass) {
      const double x = one(variance);
      means.mean += x / kPasses;
      means.of_squares += x * x / kPasses;
    }
    return means;
  }

 private:
  std::mt19937_64 random_{11};
  double freedom_;
  std::chi_squared_distribution<double> squared_;
};

TEST(Scatter, TellsTheFreedomOfWhatPassesDid) {
  for (const double freedom : {2.0, 20.0, 500.0}) {
    Draws draws(freedom);
    Scatter scatter;
    for (int tensor = 0; tensor < 2000; ++tensor) {
      const Draws::Means means = draws.passes();
      scatter.add(means.mean, means.of_squares, kPasses);
    }
    // Of few degrees, large errors make the mean large as well: they count as more.
    EXPECT_GT(scatter.freedom(), 0.85 * freedom);
    EXPECT_LT(scatter.freedom(), 1.35 * freedom);
  }
}

TEST(Scatter, OfPassesThatAreEqualOrAloneIsThatOfTheUnknown) {
  Scatter scatter;
  scatter.add(2.0, 4.0, kPasses);
  scatter.add(2.0, 4.0, 1);
  scatter.add(0.0, 0.0, kPasses);
  EXPECT_DOUBLE_EQ(scatter.freedom(), 15.0);
}

// Two passes of one tensor may be nearly equal by chance.
TEST(Scatter, OfOneTensorIsCautious) {
  Scatter scatter;
  scatter.add(2.0, 4.0 * (1.0 + 1e-6), 2);
  EXPECT_LT(scatter.freedom(), 16.0);
}

TEST(VariancePrior, WeighsTheMeanByHowMuchVariancesDiffer) {
  constexpr double kFreedom = 10.0;
  const auto weight = [](double freedom_of_variances) {
    std::mt19937_64 random(5);
    std::chi_squared_distribution<double> inverse(freedom_of_variances);
    Draws draws(kFreedom);
    VariancePrior alike;
    for (int thing = 0; thing < 20000; ++thing) {
      alike.add(draws.one(freedom_of_variances / inverse(random)));
    }
    return alike.weight(kFreedom);
  };
  EXPECT_NEAR(weight(10.0), 10.0, 2.5);
  EXPECT_NEAR(weight(30.0), 30.0, 6.0);
}

TEST(VariancePrior, OfThingsThatAreAlikeIsHalfOfWhatTheOthersTell) {
  VariancePrior alike;
  EXPECT_EQ(alike.weight(5.0), 0.0);
  EXPECT_EQ(alike.mean(), 1.0);
  for (int thing = 0; thing < 9; ++thing) {
    alike.add(1.5);
  }
  EXPECT_DOUBLE_EQ(alike.weight(5.0), 5.0 * 8.0 / 2.0);
  EXPECT_DOUBLE_EQ(alike.mean(), 1.5);
}

// Tables of F: 1.9160 is the root of what a thousandth exceeds with 10 and 50 degrees, 1.9898 of
// what 0.0009 exceed with 9 and 45.
TEST(RatioLimit, IsTheRootOfAQuantileOfFRoundedUp) {
  const RatioLimit limit = ratio_limit(1.0, 10.0, 50.0, 1e-3);
  EXPECT_LE(limit.freedom, 10.0);
  EXPECT_LE(limit.freedom_of_estimate, 50.0);
  EXPECT_LE(limit.by_chance, 1e-3);
  EXPECT_GE(limit.value, 1.9159);
  EXPECT_LE(limit.value, 1.9899);
  EXPECT_DOUBLE_EQ(ratio_limit(1.5, 10.0, 50.0, 1e-3).value, 1.5 * limit.value);
}

TEST(RatioLimit, IsExceededAsOftenAsItSays) {
  constexpr double kByChance = 0.01;
  constexpr int kTensors = 100000;
  for (const double freedom : {1.0, 8.0, 100.0}) {
    Draws draws(freedom);
    const RatioLimit limit = ratio_limit(1.0, freedom, kPasses * freedom, kByChance);
    int beyond = 0;
    for (int tensor = 0; tensor < kTensors; ++tensor) {
      beyond += draws.one() > limit.value * limit.value * draws.passes().mean ? 1 : 0;
    }
    EXPECT_LE(beyond, 1.1 * kByChance * kTensors) << freedom;
    EXPECT_GE(beyond, 0.4 * kByChance * kTensors) << freedom;
  }
}

}  // namespace
}  // namespace ttrace
