// Wrong updates by AdamW from right gradients, and wrong means of right losses.
#include "analysis/diagnosis/diagnosis_fixture.h"
#include "analysis/golden_wording.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace ttrace {
namespace {

using namespace testing;
using ::testing::AllOf;
using ::testing::HasSubstr;

struct Adam {
  double rate = 0.1;
  double decay = 0.1;
  double epsilon = 1e-8;
  bool corrected = true;
  bool inside = false;  // the root of the denominator
};

// The first step of AdamW with betas 0.9 and 0.95 on [16, 16].
class OptimizerDiagnosis : public DiagnosisTest {
 protected:
  [[nodiscard]] Matrix updated(const Adam& adam) const {
    Matrix result = start_;
    for (std::size_t i = 0; i < result.size(); ++i) {
      const double g = gradient_[i];
      const double m = adam.corrected ? g : 0.1 * g;
      const double v = adam.corrected ? g * g : 0.05 * g * g;
      const double denominator =
          adam.inside ? std::sqrt(v + adam.epsilon) : std::sqrt(v) + adam.epsilon;
      result[i] += -adam.rate * adam.decay * start_[i] - adam.rate * m / denominator;
    }
    return result;
  }
  Diagnosis when(const Adam& candidate, const Adam& reference = {}) {
    Matrix squared = gradient_;
    for (double& value : squared) {
      value *= 0.05 * value;
    }
    add_both("s0/param/w/0", start_, {16, 16});
    add_both("s0/main_grad/w/0", gradient_, {16, 16});
    add_both("s0/exp_avg/w/0", scaled(gradient_, 0.1), {16, 16});
    add_both("s0/exp_avg_sq/w/0", squared, {16, 16});
    add_reference("s0/param_next/w/0", updated(reference), {16, 16});
    add_candidate("s0/param_next/w/0", updated(candidate), {16, 16});
    return diagnosis("s0/param_next/w/0");
  }

  Matrix start_ = random_values(256, 1);
  Matrix gradient_ = random_values(256, 2);
};

TEST_F(OptimizerDiagnosis, WeightDecayThatIsMissingIsTold) {
  const Diagnosis found = when({.decay = 0.0});
  EXPECT_EQ(found.signature, Signature::kOptimizer);
  EXPECT_WORDING(found.sentence);
}

TEST_F(OptimizerDiagnosis, WeightDecayOfAParameterWithoutOneIsTold) {
  const Diagnosis found = when({}, {.decay = 0.0});
  EXPECT_EQ(found.signature, Signature::kOptimizer);
  EXPECT_WORDING(found.sentence);
}

TEST_F(OptimizerDiagnosis, AMissingBiasCorrectionIsTold) {
  const Diagnosis found = when({.corrected = false});
  EXPECT_EQ(found.signature, Signature::kOptimizer);
  EXPECT_WORDING(found.sentence);
}

TEST_F(OptimizerDiagnosis, AnotherLearningRateIsFitted) {
  const Diagnosis found = when({.rate = 0.13, .decay = 0.1 / 1.3});
  EXPECT_EQ(found.signature, Signature::kOptimizer);
  EXPECT_WORDING(found.sentence);
}

TEST_F(OptimizerDiagnosis, AnEpsilonInsideTheRootIsTold) {
  const Diagnosis found = when({.epsilon = 0.05, .inside = true}, {.epsilon = 0.01});
  EXPECT_EQ(found.signature, Signature::kOptimizer);
  EXPECT_WORDING(found.sentence);
}

// Symptom: AdamW with an epsilon of 1e-3 for 1e-8 was found at the right parameter and called
// "localised: only 20 of 257 rows".
TEST_F(OptimizerDiagnosis, AnotherEpsilonIsTold) {
  const Diagnosis found = when({.epsilon = 1e-3});
  EXPECT_EQ(found.signature, Signature::kOptimizer);
  // Seen next to the uncorrected second moment: 1e-3 sqrt(0.05).
  EXPECT_WORDING(found.sentence);
}

TEST_F(OptimizerDiagnosis, BothEpsilonsAreToldWhereBothShow) {
  const Diagnosis found = when({.epsilon = 0.05}, {.epsilon = 0.01});
  EXPECT_EQ(found.signature, Signature::kOptimizer);
  EXPECT_WORDING(found.sentence);
}

TEST_F(OptimizerDiagnosis, AnotherBetaIsReadFromTwoSteps) {
  const Matrix before = random_values(256, 3);
  add_both("s0/exp_avg/w/0", before, {16, 16});
  add_both("s1/main_grad/w/0", gradient_, {16, 16});
  add_reference("s1/exp_avg/w/0", sum(scaled(before, 0.9), gradient_, 0.1), {16, 16});
  add_candidate("s1/exp_avg/w/0", sum(scaled(before, 0.8), gradient_, 0.1), {16, 16});
  const Diagnosis found = diagnosis("s1/exp_avg/w/0");
  EXPECT_EQ(found.signature, Signature::kOptimizer);
  EXPECT_WORDING(found.sentence);
}

// Symptom: a sum of losses that every rank had divided by its own number of tokens was twice the
// reference's, and no cause was named.
TEST_F(DiagnosisTest, ALossOfOneNumberIsAMultipleWhereTheFactorMeansSomething) {
  add_reference("s0/m0/loss/loss/0", {8.1}, {1});
  add_candidate("s0/m0/loss/loss/0", {16.2}, {1});
  const Diagnosis found = diagnosis("s0/m0/loss/loss/0");
  EXPECT_EQ(found.signature, Signature::kWrongFactor);
  EXPECT_WORDING(found.sentence);
}

TEST_F(DiagnosisTest, ALossOfOneNumberIsNoMultipleByAFactorWithoutMeaning) {
  add_reference("s0/m0/loss/loss/0", {8.1}, {1});
  add_candidate("s0/m0/loss/loss/0", {9.3}, {1});
  const Report report = report_of_run();
  EXPECT_TRUE(report.diverged());
  EXPECT_FALSE(report.diagnosis.has_value()) << report.diagnosis->sentence;
}

// A factor that all of them share does not concern a single module.
TEST_F(DiagnosisTest, AFactorCommonToAllGradientsIsCounted) {
  for (const std::uint32_t seed : {1U, 2U, 3U}) {
    const std::string id = "s0/main_grad/w" + std::to_string(seed) + "/0";
    const Matrix values = random_values(64, seed);
    add_reference(id, values, {8, 8});
    add_candidate(id, scaled(values, seed == 3 ? 1.0 : 2.0), {8, 8});
  }
  const Diagnosis found = diagnosis("s0/main_grad/w1/0");
  EXPECT_EQ(found.signature, Signature::kWrongFactor);
  EXPECT_WORDING(found.sentence);
}

TEST_F(DiagnosisTest, MomentsThatWereClippedByAnotherNormAreTold) {
  const Matrix values = random_values(64, 1);
  add_both("s0/scalar/other_norm/0", {1.0}, {});
  add_reference("s0/exp_avg/w/0", values, {8, 8});
  add_candidate("s0/exp_avg/w/0", scaled(values, 0.8), {8, 8});
  reference_.add(0, {"s0/scalar/grad_norm/0", {4.0}});
  candidate_.add_everywhere({"s0/scalar/grad_norm/0", {5.0}});
  const Diagnosis found = diagnosis("s0/exp_avg/w/0");
  EXPECT_EQ(found.signature, Signature::kWrongFactor);
  EXPECT_WORDING(found.sentence);
}

// Two micro-batches of losses [8, 4], of which 32 and 8 tokens count.
class LossDiagnosis : public DiagnosisTest {
 protected:
  void SetUp() override {
    for (int m = 0; m < 2; ++m) {
      const std::string id = "s0/m" + std::to_string(m);
      Matrix mask(32, 0.0);
      std::fill_n(mask.begin(), m == 0 ? 32 : 8, 1.0);
      const Matrix losses =
          sum(random_values(32, 1 + static_cast<std::uint32_t>(m)), {m == 0 ? 5.0 : 2.0});
      add_both(id + "/data/loss_mask/0", mask, {8, 4});
      add_both(id + "/loss/loss/0", losses, {8, 4});
      double counted = 0.0;
      for (std::size_t i = 0; i < (m == 0 ? 32U : 8U); ++i) {
        counted += losses[i];
      }
      sums_.push_back(counted);
    }
  }
  Diagnosis when(double reference, double candidate) {
    add_reference("s0/scalar/loss/0", {reference}, {});
    add_candidate("s0/scalar/loss/0", {candidate}, {});
    return diagnosis("s0/scalar/loss/0");
  }

  std::vector<double> sums_;
};

TEST_F(LossDiagnosis, AMeanOfMeansIsToldFromAMeanOverTokens) {
  const Diagnosis found =
      when((sums_[0] + sums_[1]) / 40.0, (sums_[0] / 32.0 + sums_[1] / 8.0) / 2.0);
  EXPECT_EQ(found.signature, Signature::kLossNormalisation);
  EXPECT_WORDING(found.sentence);
}

TEST_F(LossDiagnosis, AFactorOfTheMeanIsNamed) {
  const double mean = (sums_[0] + sums_[1]) / 40.0;
  const Diagnosis found = when(mean, 4.0 * mean);
  EXPECT_EQ(found.signature, Signature::kLossNormalisation);
  EXPECT_WORDING(found.sentence);
}

TEST_F(LossDiagnosis, AnyOtherNumberHasNoSignature) {
  const double mean = (sums_[0] + sums_[1]) / 40.0;
  add_reference("s0/scalar/loss/0", {mean}, {});
  add_candidate("s0/scalar/loss/0", {1.37 * mean}, {});
  EXPECT_FALSE(report_of_run().diagnosis.has_value());
}

}  // namespace
}  // namespace ttrace
