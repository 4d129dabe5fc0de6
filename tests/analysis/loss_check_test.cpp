// A candidate whose mean loss contradicts its own losses per token.
#include "analysis/checks/summary_checks.h"
#include "analysis/diff.h"
#include "analysis/trace_builder.h"
#include "support/temporary_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace ttrace {
namespace {

using ::testing::HasSubstr;
using testing::noise_row;
using testing::TemporaryDirectory;
using testing::TraceBuilder;

// Two micro-batches of losses [s 3, b 2]; masks are [b, s]. Noise admits errors of 1 of the scalar.
class LossCheck : public ::testing::Test {
 protected:
  TraceBuilder side(const std::string& folder,
                    const std::string& pass,
                    double last,
                    double mean,
                    const std::vector<double>& mask) {
    TraceBuilder builder(folder, pass);
    builder.manifest.roles = roles_;
    for (const std::string m : {"0", "1"}) {
      if (!mask.empty()) {
        builder.add(
            0, {"s0/m" + m + "/data/" + mask_name_ + "/0", mask, ElementType::kBool, {2, 3}, {}});
      }
      builder.add(0,
                  {"s0/m" + m + "/loss/loss/0",
                   {1.0, 2.0, 3.0, 4.0, 5.0, m == "0" ? 6.0 : last},
                   ElementType::kF32,
                   {3, 2},
                   {}});
    }
    builder.add(0, {"s0/scalar/loss/0", {mean}});
    return builder;
  }
  // `last`: of the candidate's second micro-batch, 12 in the reference.
  Report judge(double reference_mean,
               double last,
               double mean,
               const std::vector<double>& mask = {}) {
    static_cast<void>(side(folder_ / "reference", "reference", 12.0, reference_mean, mask).write());
    testing::write_noise_passes(folder_ / "reference",
                                {noise_row("s0/m0/loss/loss/0", 0.5, 0.5),
                                 noise_row("s0/m1/loss/loss/0", 0.5, 0.5),
                                 noise_row("s0/scalar/loss/0", 0.1, 0.1)});
    return diff(Trace::open(folder_ / "reference"),
                side(folder_ / "candidate", "candidate", last, mean, mask).write());
  }

  TemporaryDirectory folder_;
  std::string mask_name_ = "loss_mask";
  Section roles_;
};

constexpr double kMean = (21.0 + 27.0) / 12.0;

TEST_F(LossCheck, AMeanWithinNoiseThatItsOwnLossesDoNotMakeIsAFinding) {
  const Report report = judge(kMean, 12.0, kMean * 1.01);
  ASSERT_TRUE(report.first_divergence.has_value());
  const TensorVerdict& tensor = report.tensors[*report.first_divergence];
  EXPECT_EQ(to_string(tensor.id), "s0/scalar/loss/0");
  EXPECT_EQ(tensor.symptom(), Symptom::kMean);
  EXPECT_EQ(tensor.tier(), Tier::kT0);
  EXPECT_THAT(tensor.cause(),
              HasSubstr("it differs by 0.01 from the mean of the candidate's own losses"));
}

TEST_F(LossCheck, AMeanThatMovedWithItsLossesIsRight) {
  EXPECT_FALSE(judge(kMean, 12.6, kMean + 0.6 / 12.0).diverged());
}

// The mask leaves position 1 of sample 0 (loss 3) and position 2 of sample 1 (6 and 12) out.
const std::vector<double> kMask = {1.0, 0.0, 1.0, 1.0, 1.0, 0.0};
constexpr double kMasked = (12.0 + 12.0) / 8.0;

TEST_F(LossCheck, MaskedTokensDoNotCount) {
  EXPECT_FALSE(judge(kMasked, 12.6, kMasked, kMask).diverged());
}

TEST_F(LossCheck, MeanOfMaskedLossesThatIsWrongIsNamed) {
  const Report report = judge(kMasked, 12.0, kMasked * 1.01, kMask);
  ASSERT_TRUE(report.first_divergence.has_value());
  EXPECT_EQ(report.tensors[*report.first_divergence].symptom(), Symptom::kMean);
}

TEST_F(LossCheck, WhereTheReferencesScalarIsAnotherNumberNothingIsSaid) {
  EXPECT_FALSE(judge(kMean + 0.5, 12.0, kMean + 0.55).diverged()) << "router losses were added";
}

TEST_F(LossCheck, StepsWhoseLossesDivergeAreLeftAlone) {
  const Report report = judge(kMean, 15.0, kMean);
  for (const TensorVerdict& tensor : report.tensors) {
    EXPECT_NE(tensor.symptom(), Symptom::kMean);
  }
}

// Symptom: losses of a program that calls its mask otherwise were averaged over padding, too.
TEST_F(LossCheck, TheProgramSaysWhatItsMaskIsCalled) {
  mask_name_ = "weights";
  const std::vector<double> mask = {1, 1, 0, 1, 1, 1};  // [b 2, s 3]
  const double mean = (16.0 + 22.0) / 10.0;             // without the fifth of six losses
  roles_ = {{"loss_mask", "weights"}};
  EXPECT_TRUE(judge(mean, 12.0, mean * 1.005, mask).diverged());
}

}  // namespace
}  // namespace ttrace
