#include "analysis/reports/explain.h"

#include "analysis/bounds/bounds.h"
#include "analysis/diff.h"
#include "analysis/golden_wording.h"
#include "analysis/reports/report_writers.h"
#include "analysis/trace_builder.h"
#include "support/temporary_directory.h"
#include "trace/base/unit_in_last_place.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <sstream>
#include <string>
#include <vector>

namespace ttrace {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::kFirst;
using testing::kSecond;
using ::testing::Not;
using testing::scaled;
using ::testing::StartsWith;
using testing::TemporaryDirectory;
using testing::TraceBuilder;
using testing::wavy;

constexpr std::int64_t kExplainedRows = 64;
constexpr std::int64_t kExplainedColumns = 128;
constexpr std::size_t kExplainedElements = kExplainedRows * kExplainedColumns;
constexpr double kRounding = 0.0016;  // of the norm

double norm_of(const std::vector<double>& values) {
  double squares = 0.0;
  for (const double value : values) {
    squares += value * value;
  }
  return std::sqrt(squares);
}

std::vector<double> rounded(std::vector<double> values, double phase) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] *=
        1.0 + std::sqrt(2.0) * kRounding * std::sin(static_cast<double>(i) * (1.7 + phase) + phase);
  }
  return values;
}

// Two outputs of 64 rows that have five noise passes of one rounding, and forced passes.
class Explain : public ::testing::Test {
 protected:
  Trace write(const std::string& name,
              const std::string& pass,
              const std::vector<double>& first,
              const std::vector<double>& second) {
    TraceBuilder builder(folder_ / name, pass);
    builder.manifest.precision = "bf16";
    builder.add(0, {kFirst, first, ElementType::kF32, {kExplainedRows, kExplainedColumns}, {}});
    if (!second.empty()) {
      builder.add(0, {kSecond, second, ElementType::kF32, {kExplainedRows, kExplainedColumns}, {}});
    }
    return builder.write();
  }

  static NoiseRow noise(const std::string& id, const std::vector<double>& values) {
    const double size = kRounding * norm_of(values);
    NoiseRow row = testing::noise_row(id, size, 1e-2);
    row.along_reference = size * norm_of(values) / std::sqrt(kExplainedElements);
    row.slices.assign(kExplainedRows, size * size / kExplainedRows);
    row.slices.insert(row.slices.end(), kExplainedColumns, size * size / kExplainedColumns);
    return row;
  }

  // `first_` and `second_` are the reference's; `..._given_` are the results of operators for the
  // candidate's inputs.
  void compare(const std::vector<double>& first, const std::vector<double>& second) {
    const Trace reference = write("reference", "reference", first_, second_);
    if (with_noise_) {
      testing::write_noise_passes(reference.directory(),
                                  {noise(kFirst, first_), noise(kSecond, second_)});
    }
    const ForcedTraces forced{
        write("wide", "forced", first_given_, second_given_),
        write("native", "forced", rounded(first_given_, 0.1), rounded(second_given_, 0.1))};
    options_.forced = with_forced_ ? &forced : nullptr;
    report_ = diff(reference, write("candidate", "candidate", first, second), options_);
  }

  // The question that decides; kStructure if none does, which no test expects of a right tensor.
  static Question ruling(const Explanation& explanation) {
    return explanation.ruling ? explanation.checks.at(*explanation.ruling).question
                              : Question::kStructure;
  }
  static const Check& check(const Explanation& explanation, Question question) {
    return *std::ranges::find(explanation.checks, question, &Check::question);
  }
  static std::vector<Question> questions(const Explanation& explanation) {
    std::vector<Question> questions;
    for (const Check& each : explanation.checks) {
      questions.push_back(each.question);
    }
    return questions;
  }
  // Adds a check's components up; returns how many there are.
  static std::size_t redo(const Check& check) {
    double squares = 0.0;
    for (const ComponentValue& each : check.components) {
      EXPECT_GT(each.squared, 0.0) << traits_of(each.component).name;
      squares += each.squared;
    }
    EXPECT_NEAR(std::sqrt(squares), check.term(Term::kScale), 1e-12);
    return check.components.size();
  }

  const std::vector<double> first_ = wavy(kExplainedElements, 0.3);
  const std::vector<double> second_ = wavy(kExplainedElements, 0.7);
  std::vector<double> first_given_ = first_;
  std::vector<double> second_given_ = second_;
  bool with_noise_ = true;
  bool with_forced_ = true;
  DiffOptions options_;
  TemporaryDirectory folder_;
  Report report_;
};

TEST_F(Explain, TensorWithinItsBoundsHasAllOfThemAndTheNearestRules) {
  compare(rounded(first_, 0.2), rounded(second_, 0.3));
  const Explanation explanation = explain(report_, 1);
  EXPECT_THAT(questions(explanation),
              ElementsAre(Question::kStructure,
                          Question::kOperator,
                          Question::kOperatorPart,
                          Question::kOperatorFactor,
                          Question::kWhole,
                          Question::kPart,
                          Question::kFactor));
  double largest = 0.0;
  for (const Check& each : explanation.checks) {
    EXPECT_TRUE(each.holds) << name_of(each.question);
    largest = std::max(largest, each.share());
  }
  EXPECT_EQ(check(explanation, ruling(explanation)).share(), largest);
  EXPECT_GT(largest, 0.1);
  EXPECT_WORDING(explanation.sentence);
  EXPECT_EQ(exit_code(explanation), 0);
}

TEST_F(Explain, ComponentsAddUpToTheScaleOfTheBound) {
  compare(rounded(first_, 0.2), rounded(second_, 0.3));
  const Explanation explanation = explain(report_, 1);
  const Check& whole = check(explanation, Question::kWhole);
  EXPECT_EQ(redo(whole), 2U);  // noise and storage
  const double s = kRounding * norm_of(second_);
  const double storage = 2.0 * unit_in_last_place(ElementType::kF32, 1.05);
  EXPECT_NEAR(whole.bound, whole.term(Term::kLimit) * std::hypot(s, storage), 1e-6);
  const Check& operators = check(explanation, Question::kOperator);
  EXPECT_EQ(redo(operators), 1U);
  EXPECT_EQ(operators.components.front().component, Component::kNative);
  EXPECT_NEAR(operators.term(Term::kError) / operators.term(Term::kScale), operators.value, 1e-12);
}

TEST_F(Explain, ClassDefaultIsOneComponent) {
  with_noise_ = false;
  with_forced_ = false;
  compare(rounded(first_, 0.2), rounded(second_, 0.3));
  const Explanation explanation = explain(report_, 1);
  EXPECT_EQ(ruling(explanation), Question::kWhole);
  const Check& whole = check(explanation, Question::kWhole);
  ASSERT_EQ(whole.components.size(), 1U);
  EXPECT_EQ(whole.components.front().component, Component::kClassDefault);
  EXPECT_NEAR(std::sqrt(whole.components.front().squared), explanation.tensor.bound(), 1e-12);
}

TEST_F(Explain, WrongOperatorRulesAndIsTheFirstDivergence) {
  compare(rounded(first_, 0.2), scaled(second_, 1.5));
  const Explanation explanation = explain(report_, 1);
  EXPECT_EQ(ruling(explanation), Question::kOperator);
  EXPECT_FALSE(check(explanation, Question::kWhole).holds);
  EXPECT_TRUE(explanation.is_first_divergence);
  EXPECT_WORDING(explanation.sentence);
  EXPECT_THAT(explanation.where_to_look, HasSubstr("the forward of b"));
  EXPECT_EQ(explanation.before, 1U);
  EXPECT_EQ(explanation.wrong_before, 0U);
  ASSERT_EQ(explanation.upstream.size(), 1U);
  EXPECT_EQ(explanation.upstream[0].id, kFirst);
  EXPECT_EQ(explanation.upstream[0].relation, "nearest to its bound, just before");
  EXPECT_EQ(exit_code(explanation), 1);
}

TEST_F(Explain, RowThatRulesIsNamedWithTheRankThatHoldsIt) {
  std::vector<double> wrong = rounded(second_, 0.3);
  for (std::size_t i = 5 * kExplainedColumns; i < 6 * kExplainedColumns; ++i) {
    wrong[i] *= 1.019;
  }
  with_forced_ = false;
  compare(rounded(first_, 0.2), wrong);
  const Explanation explanation = explain(report_, 1);
  EXPECT_EQ(ruling(explanation), Question::kPart);
  EXPECT_TRUE(check(explanation, Question::kWhole).holds);
  const Check& slice = check(explanation, Question::kPart);
  EXPECT_EQ(slice.place.where, "rows 5:6 of dimension 0");
  EXPECT_THAT(slice.place.ranks, ElementsAre(0));
}

TEST_F(Explain, InheritedTensorNamesTheFindingThatItComesFrom) {
  second_given_ = scaled(second_, 1.5);
  compare(scaled(first_, 1.5), rounded(second_given_, 0.3));
  const Explanation explanation = explain(report_, 1);
  EXPECT_EQ(explanation.tensor.status(), Status::kInherited);
  EXPECT_EQ(check(explanation, ruling(explanation)).tier(), Tier::kT1);
  EXPECT_FALSE(check(explanation, Question::kWhole).holds);
  EXPECT_THAT(explanation.sentence, AllOf(StartsWith("inherited: "), HasSubstr("from " + kFirst)));
  EXPECT_EQ(explanation.wrong_before, 1U);
  ASSERT_FALSE(explanation.upstream.empty());
  EXPECT_EQ(explanation.upstream[0].id, kFirst);
  EXPECT_THAT(explanation.upstream[0].relation, StartsWith("first divergence, wrong"));
  EXPECT_EQ(exit_code(explanation), 0);
}

TEST_F(Explain, RoundingsThatAddedUpComeFromNoFinding) {
  second_given_ = scaled(second_, 1.005);  // bound: 0.0032
  compare(rounded(first_, 0.2), rounded(second_given_, 0.3));
  const Explanation explanation = explain(report_, 1);
  EXPECT_EQ(explanation.tensor.status(), Status::kInherited);
  EXPECT_WORDING(explanation.sentence);
}

TEST_F(Explain, MissingTensorIsDecidedByStructureAlone) {
  compare(rounded(first_, 0.2), {});
  const Explanation explanation = explain(report_, 1);
  EXPECT_THAT(questions(explanation), ElementsAre(Question::kPresence));
  EXPECT_EQ(explanation.ruling, 0U);
  EXPECT_THAT(explanation.checks.front().components, IsEmpty());
  EXPECT_WORDING(explanation.sentence);
}

TEST_F(Explain, ToleranceAskedForStandsInForTheBoundFromNoise) {
  options_.tolerance.add_rtol("0.1");
  compare(rounded(first_, 0.2), rounded(second_, 0.3));
  const Explanation explanation = explain(report_, 1);
  EXPECT_THAT(questions(explanation), ElementsAre(Question::kStructure, Question::kTolerance));
  EXPECT_LT(check(explanation, Question::kTolerance).value, 0.1);
}

// The smallest error that is seen in one row is smaller, and that of a factor is smaller still.
TEST_F(Explain, SmallestErrorsAreThoseThatTheBoundsAdmit) {
  compare(rounded(first_, 0.2), rounded(second_, 0.3));
  const Explanation explanation = explain(report_, 1);
  const auto relative = [&](Question kind) { return check(explanation, kind).detectable; };
  const double limit = check(explanation, Question::kWhole).term(Term::kLimit);
  EXPECT_NEAR(relative(Question::kWhole), limit * kRounding, 1e-5);
  const double of_operator = check(explanation, Question::kOperator).term(Term::kLimit);
  EXPECT_NEAR(relative(Question::kOperator), of_operator * kRounding, 1e-4);
  EXPECT_GT(relative(Question::kOperatorPart), 0.0);
  EXPECT_LT(relative(Question::kOperatorPart), relative(Question::kOperator));
  EXPECT_GT(relative(Question::kOperatorFactor), 0.0);
  EXPECT_LT(relative(Question::kOperatorFactor), relative(Question::kOperator));
}

TEST_F(Explain, TextGoesFromTheVerdictToWhatCameBefore) {
  compare(rounded(first_, 0.2), scaled(second_, 1.5));
  std::ostringstream out;
  write_text(out, explain(report_, 1));
  const std::string text = out.str();
  std::size_t last = 0;
  for (const char* part : {"s0/m0/output/b/0\nDIVERGED, ",
                           "error: ||c - r|| ",
                           "\nbounds (* marks the one that decides):\n",
                           "\n  *  T1 its own operators, R  ",
                           "\n     T2 the whole tensor  ",
                           "\nT1 its own operators, R:\n",
                           "\nT2 the whole tensor:\n",
                           "noise: the mean of ||m - r||^2 over the noise passes",
                           "\ncause: ",
                           "\nto do: ",
                           "\nrecorded before it: 1 tensor, 0 of them wrong\n"}) {
    const std::size_t at = text.find(part, last);
    ASSERT_NE(at, std::string::npos) << part << " is not in\n" << text;
    last = at;
  }
  EXPECT_THAT(text, Not(HasSubstr(" \n")));
}

TEST_F(Explain, JsonIsTheReportsObjectWithTheExplanationAdded) {
  compare(rounded(first_, 0.2), scaled(second_, 1.5));
  std::ostringstream whole;
  write_json(whole, report_);
  std::ostringstream one;
  write_json(one, explain(report_, 1));
  const auto expected = nlohmann::json::parse(whole.str())["tensors"][1];
  const auto found = nlohmann::json::parse(one.str());
  for (const auto& [key, value] : expected.items()) {
    if (key != "checks") {  // here in the order in which they decide, and with what rules
      EXPECT_EQ(found.at(key), value) << key;
    }
  }
  ASSERT_EQ(found["checks"].size(), 7U);
  EXPECT_EQ(found["checks"][1]["question"], "operator");
  EXPECT_EQ(found["checks"][1]["rules"], true);
  EXPECT_TRUE(found["checks"][0]["value"].is_null());
  EXPECT_EQ(found["is_first_divergence"], true);
  EXPECT_EQ(found["upstream"][0]["id"], kFirst);
}

}  // namespace
}  // namespace ttrace
