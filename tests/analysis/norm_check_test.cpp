// A candidate whose gradient norm contradicts its own main gradients.
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

// Two main gradients of norms 3 and 4; noise admits errors of 0.5 in the norm of both, 5.
class NormCheck : public ::testing::Test {
 protected:
  Report judge(const TraceBuilder& reference, double second, double norm) {
    TraceBuilder candidate(folder_ / "candidate", "candidate");
    candidate.add(0, {"s0/main_grad/a/0", {3.0, 0.0}});
    candidate.add(0, {"s0/main_grad/b/0", {0.0, second}});
    candidate.add(0, {"s0/scalar/" + name_ + "/0", {norm}});
    candidate.manifest.roles = roles_;
    candidate.manifest.precision = precision_;
    static_cast<void>(TraceBuilder(reference).write());
    testing::write_noise_passes(folder_ / "reference",
                                {noise_row("s0/main_grad/a/0", 0.05, 0.05),
                                 noise_row("s0/main_grad/b/0", 0.05, 0.05),
                                 noise_row("s0/scalar/" + name_ + "/0", 0.05, 0.05)});
    return diff(Trace::open(folder_ / "reference"), candidate.write());
  }
  [[nodiscard]] TraceBuilder reference(double norm) const {
    TraceBuilder builder(folder_ / "reference", "reference");
    builder.manifest.precision = precision_;
    builder.add(0, {"s0/main_grad/a/0", {3.0, 0.0}});
    builder.add(0, {"s0/main_grad/b/0", {0.0, 4.0}});
    builder.add(0, {"s0/scalar/" + name_ + "/0", {norm}});
    return builder;
  }

  TemporaryDirectory folder_;
  std::string name_ = "grad_norm";  // of the scalar
  std::string precision_ = "f32";
  Section roles_;
};

// Seen where the norm counted experts' gradients on the first tensor-parallel rank only: 0.24 %
// off, where noise explains 1.7 %.
TEST_F(NormCheck, ANormWithinNoiseThatItsOwnGradientsDoNotMakeIsAFinding) {
  const Report report = judge(reference(5.0), 4.0, 4.988);
  ASSERT_TRUE(report.first_divergence.has_value());
  const TensorVerdict& tensor = report.tensors[*report.first_divergence];
  EXPECT_EQ(to_string(tensor.id), "s0/scalar/grad_norm/0");
  EXPECT_EQ(tensor.symptom(), Symptom::kNorm);
  EXPECT_EQ(tensor.tier(), Tier::kT0);
  EXPECT_THAT(tensor.cause(), HasSubstr("it differs by 0.0024 from"));
}

// Symptom: a program that calls its norm otherwise lost the check.
TEST_F(NormCheck, TheProgramSaysWhatItsNormIsCalled) {
  name_ = "grad_size";
  roles_ = {{"gradient_norm", "grad_size"}};
  EXPECT_TRUE(judge(reference(5.0), 4.0, 4.988).diverged());
}

TEST_F(NormCheck, AScalarThatIsCalledOtherwiseIsLeftToNoise) {
  name_ = "grad_size";
  EXPECT_FALSE(judge(reference(5.0), 4.0, 4.988).diverged());
}

TEST_F(NormCheck, ANormThatMovedWithItsGradientsIsRight) {
  EXPECT_FALSE(judge(reference(5.0), 4.05, 5.04009).diverged());
}

// Symptom: "it differs by 0.00411 from the norm of the candidate's own main gradients" in a clean
// run of torchtitan's pipeline, which adds BF16 norms of its stages up.
TEST_F(NormCheck, ANormThatIsOneOfTheGradientsTypeMayBeRoundedToIt) {
  precision_ = "bf16";
  EXPECT_FALSE(judge(reference(5.0), 4.0, 5.03125).diverged());
}

TEST_F(NormCheck, ANormThatIsTwoRoundingsOfTheGradientsTypeOffIsAFinding) {
  precision_ = "bf16";
  EXPECT_TRUE(judge(reference(5.0), 4.0, 5.0625).diverged());
}

TEST_F(NormCheck, ANormOfBf16GradientsThatIsTakenInF32IsHeldToIt) {
  precision_ = "bf16";
  EXPECT_TRUE(judge(reference(5.0), 4.0, 5.03).diverged());
}

TEST_F(NormCheck, AScalarThatIsAnotherNormInTheReferenceIsLeftToNoise) {
  EXPECT_FALSE(judge(reference(7.0), 4.0, 7.1).diverged());
}

TEST_F(NormCheck, GradientsOutOfBoundAreWhatIsReported) {
  const Report report = judge(reference(5.0), 5.0, 5.0);
  ASSERT_TRUE(report.first_divergence.has_value());
  EXPECT_EQ(to_string(report.tensors[*report.first_divergence].id), "s0/main_grad/b/0");
  EXPECT_EQ(report.tensors.back().status(), Status::kWithin);
}

// The moment of a gradient of 10'000 ones, which was clipped by its norm, 100; noise admits errors
// of 1e-8 in both. A sum of so many squares is wrong by up to 6e-6.
class RoundedNorm : public NormCheck {
 protected:
  Report judge_moment(double norm, double moment) {
    const auto program = [&](const std::string& name, double of_norm, double of_moment) {
      TraceBuilder builder(folder_ / name, name);
      builder.add(0, {"s0/main_grad/a/0", std::vector<double>(10000, 1.0)});
      builder.add(0, {"s0/scalar/grad_norm/0", {of_norm}});
      return builder.add(0, {"s0/exp_avg/a/0", {0.3 * of_moment, 0.4 * of_moment}}).write();
    };
    static_cast<void>(program("reference", 100.0, 1.0));
    testing::write_noise_passes(folder_ / "reference",
                                {noise_row("s0/main_grad/a/0", 1e-8, 1e-8),
                                 noise_row("s0/scalar/grad_norm/0", 1e-8, 1e-8),
                                 noise_row("s0/exp_avg/a/0", 1e-8, 1e-8)});
    return diff(Trace::open(folder_ / "reference"), program("candidate", norm, moment));
  }
  static std::string first(const Report& report) {
    return report.first_divergence ? to_string(report.tensors[*report.first_divergence].id) : "";
  }
};

// Symptom: a clean run of torchtitan in F32 "differs 5.67x as much as round-off explains" in its
// gradients' norm, and 17x in every moment: torch's norm of half a million elements is wrong by
// 3e-5, and that of half of them by another number.
TEST_F(RoundedNorm, IsNoFindingAndNeitherAreMomentsOfWhatItClipped) {
  const Report report = judge_moment(100.0 * (1.0 + 4e-6), 1.0 - 4e-6);
  EXPECT_FALSE(report.diverged());
  EXPECT_EQ(report.counts().inherited, 2U);
}

TEST_F(RoundedNorm, DoesNotExplainALargerErrorOfAMoment) {
  EXPECT_EQ(first(judge_moment(100.0 * (1.0 + 4e-6), 1.0 - 4e-5)), "s0/exp_avg/a/0");
}

TEST_F(RoundedNorm, IsAFindingWhereASumOfItsSquaresIsNotWrongByAsMuch) {
  EXPECT_EQ(first(judge_moment(100.0 * (1.0 + 1e-5), 1.0 - 1e-5)), "s0/scalar/grad_norm/0");
}

}  // namespace
}  // namespace ttrace
