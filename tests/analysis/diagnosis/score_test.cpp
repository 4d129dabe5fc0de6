// Tests how hypotheses are ranked, and what they may use.
#include "analysis/align/matching.h"
#include "analysis/causes/common/evidence.h"
#include "analysis/diagnosis/diagnosis_fixture.h"
#include "analysis/golden_wording.h"
#include "analysis/reports/explain.h"
#include "analysis/reports/report_writers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <random>
#include <sstream>
#include <string>
#include <vector>

namespace ttrace {
namespace {

using namespace testing;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class ScoreTest : public DiagnosisTest {
 protected:
  // The diagnosis of the first divergence if `finders` are tried in this order.
  std::string said(std::span<const Finder> finders) {
    const Trace reference = Trace::open(directory_ / "reference");
    const Trace candidate = Trace::open(directory_ / "candidate");
    const std::vector<Match> matches = match(reference, candidate);
    const Evidence evidence(matches, finding_, candidate);
    const auto found = diagnose(evidence, finders);
    if (!found) {
      return "nothing";
    }
    std::string text = std::string(name_of(found->signature)) + ": " + found->sentence;
    if (found->runner_up) {
      text += "\nor: " + std::string(name_of(found->runner_up->signature)) + ": " +
              found->runner_up->sentence;
    }
    return text;
  }
  void expect_the_same_in_any_order() {
    const Report report = report_of_run();
    ASSERT_TRUE(report.diverged());
    finding_ = report.tensors.at(*report.first_divergence);
    std::vector<Finder> finders(all_finders().begin(), all_finders().end());
    const std::string expected = said(finders);
    EXPECT_NE(expected, "nothing");
    std::mt19937 generator(7);
    for (int i = 0; i < 8; ++i) {
      std::shuffle(finders.begin(), finders.end(), generator);
      EXPECT_EQ(said(finders), expected);
    }
  }
  // A sum of two micro-batches' gradients, taken twice.
  void add_doubled_gradient() {
    const Matrix first = random_values(64, 1);
    const Matrix second = random_values(64, 2);
    add_both("s0/m0/param_grad/w/0", first, {8, 8});
    add_both("s0/m1/param_grad/w/0", second, {8, 8});
    add_reference("s0/main_grad/w/0", sum(first, second), {8, 8});
    add_candidate("s0/main_grad/w/0", scaled(sum(first, second), 2.0), {8, 8});
  }

  // The same, after the finding's failed checks claim that a part of 1 - `left` of its error is
  // `claimed`.
  std::optional<Diagnosis> with_claim(const std::string& claimed, double left) {
    const Report report = report_of_run();
    finding_ = report.tensors.at(report.first_divergence.value());
    for (Check& check : finding_.checks) {
      if (!check.holds) {
        check.claim = Hypothesis{Signature::kWrongAddends, claimed, {}, 1.0, left, 1.0};
      }
    }
    const Trace reference = Trace::open(directory_ / "reference");
    const Trace candidate = Trace::open(directory_ / "candidate");
    const std::vector<Match> matches = match(reference, candidate);
    return diagnose(Evidence(matches, finding_, candidate));
  }

  TensorVerdict finding_;
};

// Symptom: which of two causes that both fit was named depended on the line in which it stood.
TEST_F(ScoreTest, TheOrderOfHypothesesDecidesNothing) {
  add_doubled_gradient();
  expect_the_same_in_any_order();
}

TEST_F(ScoreTest, NorDoesItForRowsThatManyHypothesesExplain) {
  const Matrix values = random_values(std::size_t{32} * 8, 1);
  Matrix wrong = values;
  std::fill(wrong.begin() + 128, wrong.begin() + 192, 0.0);
  add_reference(kOutput, values, {32, 8});
  add_candidate(kOutput, wrong, {32, 8});
  expect_the_same_in_any_order();
}

// Symptom: a sum taken twice was called a wrong factor, and nothing said that both look alike.
TEST_F(ScoreTest, ACauseThatIsNearlyAsGoodIsNamedToo) {
  add_doubled_gradient();
  const Diagnosis found = diagnosis("s0/main_grad/w/0");
  EXPECT_EQ(found.signature, Signature::kWrongFactor);
  EXPECT_THAT(found.named.axes, ::testing::ElementsAre("tp"));
  ASSERT_TRUE(found.runner_up.has_value());
  EXPECT_EQ(found.runner_up->signature, Signature::kRepeatedReduction);
  EXPECT_WORDING(found.runner_up->sentence);
}

// Symptom: what a check claimed of its own numbers was the cause, whatever explained more.
TEST_F(ScoreTest, AClaimOfACheckIsOneHypothesisAmongOthers) {
  add_doubled_gradient();
  const auto poor = with_claim("a claim", 0.4);
  ASSERT_TRUE(poor.has_value());
  EXPECT_EQ(poor->signature, Signature::kWrongFactor);
}

TEST_F(ScoreTest, AClaimThatExplainsTheErrorIsTheCauseWhereNothingElseDoes) {
  const Matrix values = random_values(64, 1);
  add_reference(kOutput, values, {8, 8});
  add_candidate(kOutput, sum(values, random_values(64, 2)), {8, 8});
  const auto found = with_claim("a claim", 1e-6);
  ASSERT_TRUE(found.has_value());
  EXPECT_WORDING(found->sentence);
}

TEST_F(ScoreTest, TheRunnerUpStandsInTheTextAndInTheJson) {
  add_doubled_gradient();
  const Report report = report_of_run();
  std::ostringstream text;
  write_text(text, report, {});
  EXPECT_THAT(text.str(), HasSubstr("\n  or         repeated reduction: all addends have"));
  std::ostringstream out;
  write_json(out, report);
  const auto json = nlohmann::json::parse(out.str()).at("diagnoses").at(0);
  EXPECT_EQ(json.at("runner_up").at("signature"), "repeated_reduction");
  EXPECT_EQ(json.at("named").at("axes").at(0), "tp");
}

// Symptom: explanations and JUnit reports named the best cause as if there were no other.
TEST_F(ScoreTest, TheRunnerUpStandsInExplanationsAndInJunitReports) {
  add_doubled_gradient();
  const Report report = report_of_run();
  const Explanation explanation = explain(report, *report.first_divergence);
  std::ostringstream text;
  write_text(text, explanation);
  EXPECT_THAT(text.str(), HasSubstr("\nor: repeated reduction: all addends have"));
  std::ostringstream out;
  write_json(out, explanation);
  EXPECT_EQ(nlohmann::json::parse(out.str()).at("runner_up").at("signature"), "repeated_reduction");
  std::ostringstream junit;
  write_junit(junit, report);
  EXPECT_THAT(junit.str(),
              AllOf(HasSubstr("; cause: wrong factor: "),
                    HasSubstr("\nor: repeated reduction: all addends have")));
}

TEST_F(ScoreTest, ACauseThatExplainsLessIsNoRunnerUp) {
  const Matrix values = random_values(std::size_t{32} * 8, 1);
  Matrix wrong = values;
  std::fill(wrong.begin() + 128, wrong.begin() + 192, 0.0);
  const Diagnosis found = when(values, wrong, {32, 8});
  EXPECT_EQ(found.signature, Signature::kZeroBlock);
  EXPECT_FALSE(found.runner_up.has_value());
}

// Symptom: the second step ran in another layout, and its factor was named by an axis that only the
// first step had.
TEST_F(ScoreTest, AxesAreThoseOfTheFindingsStep) {
  const Matrix values = random_values(64, 1);
  add_reference("s0/main_grad/w/0", values, {8, 8});
  add_reference("s1/main_grad/w/0", values, {8, 8});
  TraceBuilder second(directory_ / "candidate", "candidate", 2, "dp");
  second.add_everywhere({"s1/main_grad/w/0", scaled(values, 2.0), ElementType::kF32, {8, 8}});
  static_cast<void>(second.write());
  std::filesystem::remove_all(directory_ / "candidate/step000000");
  add_candidate("s0/main_grad/w/0", values, {8, 8});
  static_cast<void>(candidate_.write());
  candidate_.manifest.steps = {0, 1};
  write_manifest(directory_ / "candidate", candidate_.manifest);
  static_cast<void>(reference_.write());
  write_noise_passes(directory_ / "reference", noise_);
  const Report report =
      diff(Trace::open(directory_ / "reference"), Trace::open(directory_ / "candidate"));
  ASSERT_TRUE(report.diagnosis.has_value());
  EXPECT_THAT(report.diagnosis->sentence, AllOf(HasSubstr("= dp"), Not(HasSubstr("tp"))));
}

// The source of a module's input is known if the input was recorded as an edge. Here another record
// of the same shape lies between the two.
TEST_F(ScoreTest, TheInputOfAModuleIsTheOneThatAnEdgeNames) {
  const Matrix values = random_values(2048, 1, 3.0);
  const auto relu = [](Matrix numbers, double slope) {
    for (double& number : numbers) {
      number = number > 0.0 ? number : slope * number;
    }
    return numbers;
  };
  add_both("s0/m0/output/fc1/0", values, {32, 64});
  for (int i = 0; i < 9; ++i) {
    add_both("s0/m0/output/other" + std::to_string(i) + "/0",
             random_values(2048, 20U + static_cast<std::uint32_t>(i)),
             {32, 64});
  }
  add_reference("s0/m0/output/activation/0", relu(values, 0.0), {32, 64});
  add_candidate("s0/m0/output/activation/0", relu(values, 1.0), {32, 64});
  candidate_.edge(0, "s0/m0/input/activation/0", "s0/m0/output/fc1/0");
  const Diagnosis found = diagnosis("s0/m0/output/activation/0");
  EXPECT_EQ(found.signature, Signature::kOtherVariant);
  EXPECT_WORDING(found.sentence);
}

}  // namespace
}  // namespace ttrace
