#include "analysis/checks/golden_check.h"

#include "analysis/diff.h"
#include "analysis/golden_wording.h"
#include "analysis/reports/explain.h"
#include "analysis/reports/report_writers.h"
#include "analysis/trace_builder.h"
#include "support/temporary_directory.h"
#include "trace/base/dyadic_inputs.h"

#include <ttrace/error.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <sstream>
#include <string>
#include <vector>

namespace ttrace {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::off;
using testing::TemporaryDirectory;
using testing::TraceBuilder;
using testing::wavy;

constexpr std::size_t kHeldElements = 128;
const std::string kGoldenOutput = "s0/m0/output/a/0";

// One output of programs in BF16, where a rounding is 0.0017 of the norm; the reference errs by
// 2 %.
class GoldenCheckTest : public ::testing::Test {
 protected:
  Trace write(const std::string& name, const std::vector<double>& values) {
    TraceBuilder builder(folder_ / (name + std::to_string(comparisons_)), name);
    builder.manifest.precision = precision_;
    if (dyadic_) {
      builder.manifest.data[kInputsKey] = kDyadicInputs;
    }
    builder.add(0, {id_, values, name == "golden" ? ElementType::kF64 : ElementType::kF32});
    return builder.write();
  }
  Report compare(const std::vector<double>& reference, const std::vector<double>& candidate) {
    ++comparisons_;
    const Trace golden = write("golden", truth_);
    DiffOptions options = options_;
    options.golden = &golden;
    const Trace expected = write("reference", reference);
    if (!noise_.empty()) {
      testing::write_noise_passes(expected.directory(), noise_);
    }
    return diff(expected, write("candidate", candidate), options);
  }

  std::string precision_ = "bf16";
  std::string id_ = kGoldenOutput;
  bool dyadic_ = false;
  int comparisons_ = 0;  // each has folders of its own
  std::vector<NoiseRow> noise_;
  DiffOptions options_;
  std::vector<double> truth_ = wavy(kHeldElements, 0.3);
  TemporaryDirectory folder_;
};

TEST_F(GoldenCheckTest, CandidateThatErrsAsTheReferenceDoesIsWithinBound) {
  const Report report = compare(off(truth_, 0.02, 1.0), off(truth_, 0.021, 2.0));
  EXPECT_FALSE(report.diverged());
  ASSERT_NE(report.tensors[0].find(Question::kTooCoarse), nullptr);
  EXPECT_NEAR(report.tensors[0].find(Question::kTooCoarse)->term(Term::kRho), 1.05, 1e-3);
  EXPECT_EQ(report.counts().golden, 1U);
}

// Nearer to the reference than another rounding of it is: no other tier can see that.
TEST_F(GoldenCheckTest, CandidateOfAHigherPrecisionIsTooAccurate) {
  const Report report = compare(off(truth_, 0.02, 1.0), off(truth_, 0.002, 2.0));
  ASSERT_TRUE(report.diverged());
  const TensorVerdict& tensor = report.tensors[0];
  EXPECT_EQ(tensor.tier(), Tier::kGolden);
  EXPECT_EQ(tensor.symptom(), Symptom::kTooAccurate);
  EXPECT_THAT(
      tensor.cause(),
      AllOf(HasSubstr(
                "it computes in higher precision than bf16: its error against FP64 is only 0.1x"),
            HasSubstr("is autocast active here?")));
  EXPECT_FALSE(report.diagnosis);
  EXPECT_THAT(report.where_to_look, HasSubstr("the precision recipe of a"));
  std::ostringstream text;
  write_text(text, report, {.details = true});
  EXPECT_THAT(text.str(),
              AllOf(HasSubstr("is 0.0161 away from FP64 and the reference 0.161\n"),
                    HasSubstr("; compared with FP64 1, too accurate 1")));
}

TEST_F(GoldenCheckTest, ReferenceThatWasRoundedOnceLeavesNoRoomToBeTooAccurate) {
  const Report report = compare(off(truth_, 0.003, 1.0), truth_);
  EXPECT_FALSE(report.diverged());
}

// Symptom: a clean run of two steps alarmed at the embedding of the second one, whose errors are a
// few updates that flipped their signs in one run and not in the other.
TEST_F(GoldenCheckTest, WhatAnUpdateBroughtIsOneEvent) {
  const auto both = [&](const std::string& name, const std::vector<double>& values) {
    TraceBuilder builder(folder_ / name, name);
    builder.manifest.precision = precision_;
    builder.add(0, {kGoldenOutput, values})
        .add(0, {"s0/m0/param_grad/w/0", values})
        .add(0, {"s1/m0/output/a/0", values});
    return builder.write();
  };
  const Trace golden = both("golden", truth_);
  options_.golden = &golden;
  const Trace reference = both("reference", off(truth_, 0.02, 1.0));
  testing::write_noise_passes(reference.directory(),
                              {testing::noise_row(kGoldenOutput, 0.01, 0.01),
                               testing::noise_row("s0/m0/param_grad/w/0", 0.01, 0.01),
                               testing::noise_row("s1/m0/output/a/0", 0.1, 0.1)});
  const Report report = diff(reference, both("candidate", off(truth_, 0.0005, 2.0)), options_);
  ASSERT_EQ(report.tensors.size(), 3U);
  EXPECT_TRUE(report.tensors[0].fails(Question::kTooAccurate));
  EXPECT_FALSE(report.tensors[2].fails(Question::kTooAccurate));
  EXPECT_NEAR(report.tensors[2].find(Question::kTooCoarse)->term(Term::kRho), 0.025, 1e-3);
}

// Symptom: a loss that was exact by chance made the candidate's too coarse.
TEST_F(GoldenCheckTest, TheRatioOfTwoSingleNumbersMayBeAnything) {
  id_ = "s0/m0/loss/loss/0";
  truth_ = {4.5};
  const Report report = compare({4.5 * (1.0 + 1e-6)}, {4.5 * (1.0 + 1e-4)});
  ASSERT_NE(report.tensors[0].find(Question::kTooCoarse), nullptr);
  EXPECT_GT(report.tensors[0].find(Question::kTooCoarse)->term(Term::kRho), 99.0);
  EXPECT_FALSE(report.diverged());
}

// The error is within the class default of 2 % of the norm, which ignores this tensor's noise.
TEST_F(GoldenCheckTest, CandidateOfALowerPrecisionIsTooCoarse) {
  const Report report = compare(off(truth_, 0.0018, 1.0), off(truth_, 0.0145, 2.0));
  ASSERT_TRUE(report.diverged());
  EXPECT_EQ(report.tensors[0].symptom(), Symptom::kTooCoarse);
  EXPECT_EQ(name_of(report.tensors[0].tier()), "golden");
  EXPECT_THAT(report.tensors[0].cause(), HasSubstr("computes in lower precision than bf16"));
}

TEST_F(GoldenCheckTest, ExplanationRedoesTheRatio) {
  const Report report = compare(off(truth_, 0.02, 1.0), off(truth_, 0.002, 2.0));
  const Explanation explanation = explain(report, 0);
  ASSERT_TRUE(explanation.ruling);
  const Check& check = explanation.checks.at(*explanation.ruling);
  EXPECT_EQ(check.question, Question::kTooAccurate);
  EXPECT_FALSE(check.holds);
  EXPECT_NEAR(check.value, 0.1, 1e-3);
  const Check& golden = *explanation.tensor.find(Question::kTooCoarse);
  EXPECT_NEAR(golden.term(Term::kCandidateError) / golden.term(Term::kReferenceError), 0.1, 1e-3);
}

// By the triangle inequality no bound may lie below (1 + rho) ||r - g||.
TEST_F(GoldenCheckTest, ExplanationSaysWhereNoisePassesMovedATensorTooLittle) {
  noise_ = {testing::noise_row(kGoldenOutput, 1e-3, 1e-4)};
  const Report report = compare(off(truth_, 0.02, 1.0), off(truth_, 0.02, 2.5));
  ASSERT_TRUE(report.diverged());
  EXPECT_WORDING(explain(report, 0).sentence);
}

TEST_F(GoldenCheckTest, DyadicInputsDemandEqualityWhereTheReferenceRoundsNothing) {
  dyadic_ = true;
  precision_ = "f32";
  std::vector<double> wrong = truth_;
  wrong[5] *= 1.000001;
  const Report report = compare(truth_, wrong);
  ASSERT_TRUE(report.diverged());
  EXPECT_EQ(report.tensors[0].tier(), Tier::kT3);
  EXPECT_EQ(report.tensors[0].symptom(), Symptom::kNotExact);
  EXPECT_THAT(report.tensors[0].cause(), HasSubstr("1 of 128 elements differ"));
  EXPECT_EQ(report.counts().must_be_equal, 1U);
  EXPECT_FALSE(compare(truth_, truth_).diverged());
}

TEST_F(GoldenCheckTest, DyadicInputsJudgeNothingWhereTheReferenceRounds) {
  dyadic_ = true;
  precision_ = "f32";
  const Report report = compare(off(truth_, 1e-6, 1.0), off(truth_, 0.5, 2.0));
  EXPECT_FALSE(report.diverged());
  EXPECT_EQ(report.tensors[0].status(), Status::kNotJudged);
  EXPECT_EQ(report.counts().not_judged, 1U);
  EXPECT_EQ(exit_code(explain(report, 0)), 2);
}

TEST_F(GoldenCheckTest, DyadicInputsWithoutAGoldenPassAreRefused) {
  dyadic_ = true;
  EXPECT_THROW(static_cast<void>(diff(write("reference", truth_), write("candidate", truth_))),
               UsageError);
}

}  // namespace
}  // namespace ttrace
