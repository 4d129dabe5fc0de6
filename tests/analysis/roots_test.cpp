// Several bugs in one run: which findings have a cause of their own.
#include "analysis/causes/roots.h"

#include "analysis/diff.h"
#include "analysis/golden_wording.h"
#include "analysis/reports/explain.h"
#include "analysis/reports/report_writers.h"
#include "analysis/trace_builder.h"
#include "support/temporary_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <sstream>
#include <string>
#include <vector>

namespace ttrace {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::scaled;
using ::testing::SizeIs;
using testing::TemporaryDirectory;
using testing::TraceBuilder;
using testing::wavy;

// One tensor of a run: the reference's, the candidate's, and the result of its operators for the
// candidate's own values.
struct Recorded {
  std::string id;
  std::vector<double> reference;
  std::vector<double> candidate;
  std::vector<double> given;
  std::vector<std::int64_t> shape = {8, 8};
  ElementType type = ElementType::kF32;  // but of the wide forced pass
};

class RootsTest : public ::testing::Test {
 protected:
  Report report_of(const std::vector<Recorded>& run) {
    TraceBuilder reference(folder_ / "reference", "reference");
    TraceBuilder candidate(folder_ / "candidate", "candidate", 2);
    TraceBuilder wide(folder_ / "wide", "forced");
    TraceBuilder native(folder_ / "native", "forced");
    for (const Recorded& each : run) {
      reference.add(0, {each.id, each.reference, each.type, each.shape});
      candidate.add(0, {each.id, each.candidate, each.type, each.shape});
      candidate.add(
          1,
          {each.id, differ_ ? scaled(each.candidate, 1.3) : each.candidate, each.type, each.shape});
      wide.add(0, {each.id, each.given, ElementType::kF32, each.shape});
      native.add(0, {each.id, each.given, each.type, each.shape});
    }
    static_cast<void>(reference.write());
    const ForcedTraces forced{wide.write(), native.write()};
    DiffOptions options;
    options.forced = &forced;
    return diff(Trace::open(folder_ / "reference"), candidate.write(), options);
  }
  // A right operator, one that doubles, one that adds a number, and one that inherits.
  static std::vector<Recorded> two_bugs() {
    const auto a = wavy(64, 0.1);
    const auto b = wavy(64, 0.2);
    const auto c = wavy(64, 0.3);
    std::vector<double> shifted = wavy(64, 1.3);  // result of c's operators for a wrong b
    for (double& value : shifted) {
      value += 0.5;
    }
    return {{"s0/m0/output/a/0", a, a, a},
            {"s0/m0/output/b/0", b, scaled(b, 2.0), b},
            {"s0/m0/output/between/0", c, wavy(64, 0.9), wavy(64, 0.9)},
            {"s0/m0/output/c/0", c, shifted, wavy(64, 1.3)}};
  }

  bool differ_ = false;
  TemporaryDirectory folder_;
};

// Seen: of two bugs in one run only the first was explained.
TEST_F(RootsTest, TwoBugsAreBothNamedEachWithItsOwnCause) {
  const Report report = report_of(two_bugs());
  ASSERT_TRUE(report.first_divergence.has_value());
  EXPECT_EQ(to_string(report.tensors[*report.first_divergence].id), "s0/m0/output/b/0");
  ASSERT_TRUE(report.diagnosis.has_value());
  EXPECT_EQ(report.diagnosis->signature, Signature::kWrongFactor);
  ASSERT_THAT(report.further_roots, SizeIs(1)) << "what lies between inherits";
  const Root& second = report.further_roots.front();
  EXPECT_EQ(to_string(report.tensors[second.tensor].id), "s0/m0/output/c/0");
  ASSERT_TRUE(second.diagnosis.has_value());
  EXPECT_EQ(second.diagnosis->signature, Signature::kConstantBias);
  EXPECT_EQ(report.roots_left_out, 0U);
  EXPECT_EQ(explain(report, second.tensor).diagnosis->signature, Signature::kConstantBias);
}

TEST_F(RootsTest, BothStandInTheTextAndInTheJson) {
  const Report report = report_of(two_bugs());
  std::ostringstream text;
  write_text(text, report, {});
  EXPECT_THAT(text.str(), HasSubstr("\n  also made  c: output, step 0, micro-batch 0: "));
  std::ostringstream out;
  write_json(out, report);
  const auto diagnoses = nlohmann::json::parse(out.str()).at("diagnoses");
  ASSERT_THAT(diagnoses, SizeIs(2));
  EXPECT_EQ(diagnoses[0].at("signature"), "wrong_factor");
  EXPECT_EQ(diagnoses[1].at("id"), "s0/m0/output/c/0");
  EXPECT_EQ(diagnoses[1].at("signature"), "constant_bias");
}

TEST_F(RootsTest, ARightRunHasNone) {
  const auto values = wavy(64, 0.1);
  const Report report = report_of({{"s0/m0/output/a/0", values, values, values}});
  std::ostringstream out;
  write_json(out, report);
  EXPECT_THAT(nlohmann::json::parse(out.str()).at("diagnoses"), IsEmpty());
}

TEST_F(RootsTest, OneTensorIsOneRootInAllMicrobatches) {
  const auto values = wavy(64, 0.1);
  std::vector<Recorded> run;
  for (int microbatch = 0; microbatch < 3; ++microbatch) {
    run.push_back(
        {"s0/m" + std::to_string(microbatch) + "/output/a/0", values, scaled(values, 2.0), values});
  }
  EXPECT_THAT(report_of(run).further_roots, IsEmpty());
}

// Symptom: products were reported next to their scales as bugs of their own, and the cause of the
// scale was unknown, because the forced pass itself computes other operands than those that replace
// them.
TEST_F(RootsTest, AWrongScaleIsExplainedByTheCandidatesOperandAndStandsForItsProduct) {
  const auto values = wavy(64, 0.1);
  std::vector<double> operand = values;
  operand[3] = -4.0;
  operand[5] = 3.0;
  std::vector<double> of_forced = operand;
  of_forced[3] = -4.01;  // BF16 rounds it to -4
  const auto scale = [](double amax) {
    return std::vector<double>{static_cast<float>(amax / 448.0)};
  };
  const Report report =
      report_of({{"s0/m0/output/norm/0", operand, operand, of_forced, {8, 8}, ElementType::kBF16},
                 {"s0/m0/scale/fc/0", scale(4.0), scale(3.0), scale(4.0), {}},
                 {"s0/m0/operand/fc/0", operand, scaled(operand, 1.1), operand},
                 {"s0/m0/output/fc/0", values, scaled(values, 1.1), values}});
  ASSERT_TRUE(report.first_divergence.has_value());
  EXPECT_EQ(to_string(report.tensors[*report.first_divergence].id), "s0/m0/scale/fc/0");
  ASSERT_TRUE(report.diagnosis.has_value());
  EXPECT_WORDING(report.diagnosis.value().sentence);
  EXPECT_THAT(report.further_roots, IsEmpty());
}

TEST_F(RootsTest, AWrongOperandStandsForItsProductButNotForAnotherModules) {
  const auto values = wavy(64, 0.1);
  const auto wrong = scaled(values, 1.1);
  const Report report = report_of({{"s0/m0/operand/fc/0", values, wrong, values},
                                   {"s0/m0/output/fc/0", values, wrong, values},
                                   {"s0/m0/output/act/0", values, wrong, values},
                                   {"s0/m0/param_grad/fc.weight/0", values, wrong, values}});
  ASSERT_TRUE(report.first_divergence.has_value());
  EXPECT_EQ(to_string(report.tensors[*report.first_divergence].id), "s0/m0/operand/fc/0");
  ASSERT_THAT(report.further_roots, SizeIs(1));
  EXPECT_EQ(to_string(report.tensors[report.further_roots[0].tensor].id), "s0/m0/output/act/0");
}

TEST_F(RootsTest, TwoParametersStandForAllThatTheOptimizerGotWrong) {
  std::vector<Recorded> run;
  for (int i = 0; i < 5; ++i) {
    const auto values = wavy(64, 0.1 * i);
    run.push_back(
        {"s0/main_grad/w" + std::to_string(i) + "/0", values, scaled(values, 2.0), values});
  }
  const Report report = report_of(run);
  EXPECT_THAT(report.further_roots, SizeIs(1));
  EXPECT_EQ(report.roots_left_out, 3U);
}

// Ranks continue with different values, so nobody can tell which operator is wrong in addition.
TEST_F(RootsTest, BehindCopiesThatDifferNothingMoreIsTold) {
  differ_ = true;
  const Report report = report_of(two_bugs());
  EXPECT_TRUE(report.diverged());
  EXPECT_THAT(report.further_roots, IsEmpty());
}

}  // namespace
}  // namespace ttrace
