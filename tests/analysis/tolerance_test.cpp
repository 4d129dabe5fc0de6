#include "analysis/bounds/tolerance.h"

#include "analysis/checks/values_check.h"
#include "analysis/diff.h"
#include "analysis/reports/report_writers.h"
#include "analysis/trace_builder.h"
#include "support/report_json.h"
#include "support/temporary_directory.h"

#include <ttrace/error.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <limits>
#include <sstream>
#include <string>
#include <vector>

namespace ttrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::kInf;
using ::testing::Not;
using testing::Tensor;
using testing::TraceBuilder;
using testing::wavy;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

ToleranceCheck check(const Tolerance& tolerance,
                     const std::vector<double>& reference,
                     const std::vector<double>& candidate) {
  const std::vector<std::int64_t> shape{static_cast<std::int64_t>(reference.size())};
  return check_tolerance(
      tolerance, {shape, ElementType::kF64, reference.data(), ElementType::kF64, candidate.data()});
}

TEST(ToleranceTest, IsNumpysSumOfBothParts) {
  // 0.5 + 0.25 * |r|: 1.5 at |r| = 4 and 0.5 at r = 0; both are reached exactly.
  const ToleranceCheck at = check({0.25, 0.5}, {4.0, -4.0, 0.0}, {5.5, -5.5, 0.5});
  EXPECT_EQ(at.beyond, 0);
  EXPECT_EQ(at.worst, 1.0);
  const ToleranceCheck over = check({0.25, 0.5}, {4.0, -4.0, 0.0}, {5.5, -7.0, 0.75});
  EXPECT_EQ(over.beyond, 2);
  EXPECT_EQ(over.worst, 2.0);
  EXPECT_EQ(over.worst_index, 1);
  EXPECT_DOUBLE_EQ(over.norm, std::sqrt(1.5 * 1.5 + 1.5 * 1.5 + 0.5 * 0.5));
}

TEST(ToleranceTest, RtolIsAFractionOfTheReferenceNotOfTheCandidate) {
  EXPECT_EQ(check({0.5, 0.0}, {1.0}, {2.0}).beyond, 1);
  EXPECT_EQ(check({0.5, 0.0}, {2.0}, {1.0}).beyond, 0);
}

TEST(ToleranceTest, NanEqualsNanAtTheSamePlaceOnly) {
  EXPECT_EQ(check({1.0, 1.0}, {kNan, 1.0}, {kNan, 1.0}).beyond, 0);
  EXPECT_EQ(check({1.0, 1.0}, {kNan, 1.0}, {1.0, kNan}).beyond, 2);
}

TEST(ToleranceTest, InfinityEqualsOnlyItsOwnSign) {
  EXPECT_EQ(check({1.0, 1.0}, {kInf, -kInf}, {kInf, -kInf}).beyond, 0);
  // rtol * |inf| is infinite, which must not excuse a finite candidate.
  EXPECT_EQ(check({1.0, 1.0}, {kInf, kInf}, {-kInf, 1.0}).beyond, 2);
}

TEST(ToleranceTest, ZeroToleranceDemandsEquality) {
  EXPECT_EQ(check({0.0, 0.0}, {1.0, 2.0}, {1.0, 2.0}).beyond, 0);
  EXPECT_EQ(check({0.0, 0.0}, {1.0, 2.0}, {1.0, std::nextafter(2.0, 3.0)}).beyond, 1);
}

TEST(ToleranceTest, WorksAcrossBlocksAndElementTypes) {
  std::vector<double> reference(3000, 1.0);
  std::vector<double> candidate(3000, 1.0);
  candidate[2500] = 1.5;
  const std::vector<std::int64_t> shape{3000};
  std::vector<std::byte> narrow(2 * candidate.size());
  from_double(ElementType::kBF16, candidate.data(), 3000, narrow.data());
  const ToleranceCheck result = check_tolerance(
      {0.1, 0.0}, {shape, ElementType::kF64, reference.data(), ElementType::kBF16, narrow.data()});
  EXPECT_EQ(result.beyond, 1);
  EXPECT_EQ(result.worst_index, 2500);
}

std::optional<Tolerance> of(ToleranceRules& rules, const std::string& id) {
  return rules.of(parse_tensor_id(id));
}

TEST(ToleranceRulesTest, FirstFullMatchDecidesThenTheNumber) {
  ToleranceRules rules;
  rules.add_rtol("0.5");
  rules.add_rtol(".*fc.*:0.25");
  rules.add_rtol(".*:0.125");
  EXPECT_EQ(of(rules, "s0/m0/output/fc/0"), (Tolerance{0.25, 0.0}));
  EXPECT_EQ(of(rules, "s0/m0/output/norm/0"), (Tolerance{0.125, 0.0}));
  ToleranceRules part;
  part.add_atol("fc:0.25");
  EXPECT_EQ(of(part, "s0/m0/output/fc/0"), std::nullopt) << "a part of the id is no full match";
  EXPECT_THAT(part.unused(), ElementsAre(HasSubstr("--atol 'fc' matches no whole tensor id")));
}

TEST(ToleranceRulesTest, TheOtherOptionCountsAsZero) {
  ToleranceRules rules;
  rules.add_atol("1e-3");
  EXPECT_EQ(of(rules, "s0/m0/output/fc/0"), (Tolerance{0.0, 1e-3}));
  ToleranceRules none;
  EXPECT_EQ(of(none, "s0/m0/output/fc/0"), std::nullopt);
}

TEST(ToleranceRulesTest, PatternMayHoldColons) {
  ToleranceRules rules;
  rules.add_rtol("(?:s0|s1)/.*:0.5");
  EXPECT_EQ(of(rules, "s1/m0/output/fc/0"), (Tolerance{0.5, 0.0}));
}

TEST(ToleranceRulesTest, WhatIsNoToleranceIsRefused) {
  for (const std::string text : {"", "x", "-1", "nan", "inf", "fc:", "fc:-1", "1e-3x"}) {
    ToleranceRules rules;
    EXPECT_THROW(rules.add_rtol(text), UsageError) << text;
  }
  ToleranceRules twice;
  twice.add_rtol("1");
  EXPECT_THROW(twice.add_rtol("2"), UsageError);
}

// Two outputs, the second 1 % too large in the candidate, a third one only in the reference.
class JudgingTest : public ::testing::Test {
 protected:
  JudgingTest() {
    reference_.add(0, {"s0/m0/output/a/0", wavy(8)});
    reference_.add(0, {"s0/m0/output/b/0", wavy(8)});
    reference_.add(0, {"s0/m0/output/c/0", wavy(8)});
    candidate_.add(0, {"s0/m0/output/a/0", wavy(8)});
    candidate_.add(0, {"s0/m0/output/b/0", testing::scaled(wavy(8), 1.01)});
  }

  Report run() { return diff(reference_.write(), candidate_.write(), options_); }
  static std::string text(const Report& report) {
    std::ostringstream out;
    write_text(out, report, {.details = true});
    return out.str();
  }

  testing::TemporaryDirectory directory_;
  TraceBuilder reference_{directory_ / "reference", "reference"};
  TraceBuilder candidate_{directory_ / "candidate", "candidate"};
  DiffOptions options_;
};

TEST_F(JudgingTest, ToleranceAskedForReplacesTheBoundAndSaysSo) {
  options_.tolerance.add_rtol(".*/b/0:0.02");
  options_.allow_missing.emplace_back("--allow-missing", "/c/");
  const Report report = run();
  EXPECT_FALSE(report.diverged()) << text(report);
  EXPECT_EQ(report.tensors[1].bound_source(), "rtol 0.02, atol 0 (chosen by the user)");
  EXPECT_EQ(report.counts().bounds_asked, 1U);
  EXPECT_THAT(text(report), HasSubstr("bounds chosen by the user 1"));
}

TEST_F(JudgingTest, ElementsBeyondAToleranceAreCounted) {
  options_.tolerance.add_rtol("0.001");
  const Report report = run();
  ASSERT_TRUE(report.diverged());
  const TensorVerdict& tensor = report.tensors[*report.first_divergence];
  EXPECT_EQ(to_string(tensor.id), "s0/m0/output/b/0");
  ASSERT_NE(tensor.find(Question::kTolerance), nullptr);
  EXPECT_EQ(tensor.find(Question::kTolerance)->term(Term::kBeyond), 8.0);
  EXPECT_NEAR(tensor.ratio(), 10.0, 0.01);
  EXPECT_THAT(tensor.cause(), HasSubstr("8 of 8 elements differ by more than rtol 0.001, atol 0"));
  EXPECT_THAT(
      text(report),
      HasSubstr("bound      |c - r| <= 0 + 0.001 |r| at every element, from rtol 0.001, atol 0 "
                "(chosen by the user); 8 of 8 elements exceed it"));
  std::ostringstream out;
  write_json(out, report);
  const auto json = nlohmann::json::parse(out.str());
  EXPECT_EQ(testing::asked(json["tensors"][1], "tolerance")["terms"]["beyond"], 8);
  EXPECT_TRUE(testing::asked(json["tensors"][2], "tolerance").is_null()) << "nothing to compare";
  EXPECT_EQ(json["counts"]["bounds_asked"], 2);
}

TEST_F(JudgingTest, AllowedFindingsAreListedButDecideNothing) {
  options_.allow_missing.emplace_back("--allow-missing", "output/c");
  options_.allow_failed.emplace_back("--allow-failed", "output/b");
  const Report report = run();
  EXPECT_FALSE(report.diverged());
  EXPECT_TRUE(report.tensors[1].allowed());
  EXPECT_TRUE(report.tensors[2].allowed());
  const Counts counts = report.counts();
  EXPECT_EQ(counts.allowed_failed, 1U);
  EXPECT_EQ(counts.allowed_missing, 1U);
  EXPECT_EQ(counts.out_of_bound, 0U);
  EXPECT_EQ(counts.missing_in_candidate, 0U);
  EXPECT_THAT(text(report),
              ::testing::AllOf(HasSubstr("CLEAN"),
                               HasSubstr("allowed to differ, so the verdict ignores them:"),
                               HasSubstr("allowed    1 tensor out of bound, 1 missing\n"),
                               HasSubstr("allowed out of bound 1, allowed missing 1")));
  EXPECT_THAT(text(report), ::testing::Not(HasSubstr("output/c/0")))
      << "what may be missing is counted, not listed";
  EXPECT_THAT(report.warnings, IsEmpty());
}

TEST_F(JudgingTest, WhatTheCandidateDeclaresThatItCannotGiveMayBeMissing) {
  candidate_.manifest.untraced = {"/output/[bc]/"};
  const Report report = run();
  EXPECT_TRUE(report.tensors[2].allowed());
  ASSERT_TRUE(report.diverged()) << "what it gives nevertheless is judged";
  EXPECT_EQ(to_string(report.tensors[*report.first_divergence].id), "s0/m0/output/b/0");
  EXPECT_EQ(report.counts().allowed_missing, 1U);
  EXPECT_THAT(
      text(report),
      HasSubstr(
          "candidate: its program declares that it cannot record 1 of the reference's tensors"));
}

TEST_F(JudgingTest, WhatTheReferenceDeclaresThatItCannotGiveMayBeMissingThere) {
  candidate_.add(0, {"s0/m0/output/d/0", wavy(8)});
  reference_.manifest.untraced = {"/output/d/"};
  options_.allow_missing.emplace_back("--allow-missing", "output/c");
  options_.allow_failed.emplace_back("--allow-failed", "output/b");
  const Report report = run();
  EXPECT_FALSE(report.diverged()) << text(report);
  EXPECT_THAT(
      text(report),
      HasSubstr(
          "reference: its program declares that it cannot record 1 of the candidate's tensors"));
}

TEST_F(JudgingTest, WhatTheReferenceDeclaresExcusesNothingThatTheCandidateLacks) {
  reference_.manifest.untraced = {"/output/c/"};
  options_.allow_failed.emplace_back("--allow-failed", "output/b");
  const Report report = run();
  ASSERT_TRUE(report.diverged());
  EXPECT_EQ(to_string(report.tensors[*report.first_divergence].id), "s0/m0/output/c/0");
}

TEST_F(JudgingTest, AllowedFindingIsNeverTheFirstDivergence) {
  options_.allow_failed.emplace_back("--allow-failed", "output/b");
  const Report report = run();
  ASSERT_TRUE(report.diverged());
  EXPECT_EQ(to_string(report.tensors[*report.first_divergence].id), "s0/m0/output/c/0");
}

TEST_F(JudgingTest, AllowPatternsThatMatchNoFindingAreWarnedOf) {
  options_.allow_failed.emplace_back("--allow-failed", "output/a");
  options_.allow_missing.emplace_back("--allow-missing", "output/b");
  EXPECT_THAT(run().warnings,
              ElementsAre("--allow-missing 'output/b' matches no missing tensor",
                          "--allow-failed 'output/a' matches no tensor out of bound"));
}

TEST_F(JudgingTest, SelectionCountsWhatItLeavesOut) {
  SelectionRules rules;
  rules.filters.emplace_back("--filter", "output/a");
  options_.selection = Selection(rules);
  const Report report = run();
  EXPECT_FALSE(report.diverged());
  EXPECT_EQ(report.tensors.size(), 1U);
  EXPECT_EQ(report.left_out, 2U);
  EXPECT_THAT(text(report), HasSubstr("2 left out by selection"));
}

TEST_F(JudgingTest, SelectionThatLeavesNothingIsAnError) {
  SelectionRules rules;
  rules.filters.emplace_back("--filter", "nosuch");
  options_.selection = Selection(rules);
  try {
    static_cast<void>(run());
    FAIL() << "must throw";
  } catch (const UsageError& error) {
    EXPECT_THAT(
        error.message(),
        HasSubstr(
            "the selection leaves out all 3 tensors: --filter 'nosuch' matches no tensor id"));
  }
}

TEST_F(JudgingTest, StepsOnOneSideOnlyCanBeSelectedAway) {
  reference_.add(0, {"s1/m0/output/a/0", wavy(8)});
  EXPECT_THROW(static_cast<void>(run()), UsageError);
  SelectionRules rules;
  rules.steps = StepRange{0, 1};
  options_.selection = Selection(rules);
  std::filesystem::remove_all(directory_ / "reference");
  std::filesystem::remove_all(directory_ / "candidate");
  EXPECT_EQ(run().tensors.size(), 3U);
}

TEST_F(JudgingTest, ReportWithoutOptionsSaysNothingOfThem) {
  EXPECT_THAT(
      text(run()),
      Not(::testing::AnyOf(
          HasSubstr("allowed"), HasSubstr("left out by"), HasSubstr("chosen by the user"))));
}

}  // namespace
}  // namespace ttrace
