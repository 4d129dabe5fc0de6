// The harness's own logic, without processes: plan, search, reading of reports, figures.
#include "analysis/reports/report_writers.h"
#include "fuzz_layouts/case.h"
#include "roc/ablation.h"
#include "roc/figures.h"
#include "roc/ledger_page.h"
#include "roc/observe.h"
#include "roc/page.h"
#include "roc/plan.h"
#include "roc/search.h"
#include "trace/base/pattern.h"

#include <ttrace/error.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace ttrace::roc {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::IsSupersetOf;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

Observation seen(std::set<std::string> flagged) {
  return {.changed = true, .flagged = std::move(flagged), .present = {"T0", "T2", "any", "cosine"}};
}

TEST(Plan, SharesSeriesAndSettingsBetweenKeys) {
  const Plan both = make_plan({.keys = "bf16_t[12]_partial_sum"});
  EXPECT_THAT(both.keys, SizeIs(2));
  EXPECT_THAT(both.series, SizeIs(3 * 2));    // layers, weights
  EXPECT_THAT(both.settings, SizeIs(4 * 2));  // batches, weights
  EXPECT_TRUE(both.needs_training());
}

TEST(Plan, TakesFirstMiddleAndLastLayerOfMutantsThatHaveOne) {
  std::set<int> layers;
  for (const Series& series : make_plan({.keys = "^bf16_t1_row$"}).series) {
    layers.insert(series.layer.value());
  }
  EXPECT_THAT(layers, UnorderedElementsAre(0, 2, 3));
  for (const Series& series : make_plan({.keys = "optimizer"}).series) {
    EXPECT_FALSE(series.layer.has_value());
  }
}

// Symptom: the quick plan asked for an error of 10 % only, so that a hundredfold loss of
// sensitivity passed.
TEST(Plan, QuickAsksForTodaysFiguresAtOnePlace) {
  const Plan plan = make_plan({.quick = true});
  EXPECT_THAT(plan.settings, SizeIs(1));
  EXPECT_THAT(plan.series, SizeIs(2));
  EXPECT_FALSE(plan.needs_training());
  for (const Key& key : plan.keys) {
    const auto full = std::find_if(all_keys().begin(), all_keys().end(), [&](const Key& each) {
      return each.name == key.name;
    });
    EXPECT_LE(key.goal, full->goal) << key.name;
    EXPECT_GT(key.goal, 0.0) << key.name;
  }
  for (const Series& series : plan.series) {
    const std::vector<double> wanted = series.mutant == "norm_grad_shard"
                                           ? std::vector<double>{1e-2}
                                           : std::vector<double>{1e-3, 2e-3};
    EXPECT_EQ(magnitudes_of(plan, series), wanted);
  }
}

TEST(PlacesOf, AMutantAreItsOwnTensors) {
  const auto owns = [](const std::string& mutant, std::optional<int> layer, const std::string& id) {
    const Series series{"bf16", Weights::kInit, mutant, layer};
    return Pattern("own", places_of(series).own).matches(id);
  };
  EXPECT_TRUE(owns("operator_scale", 2, "s0/m0/output/decoder.layers.2.mlp.linear_fc2/0"));
  EXPECT_FALSE(owns("operator_scale", 2, "s0/m0/output/decoder.layers.1.mlp.linear_fc2/0"));
  EXPECT_FALSE(owns("operator_scale", 2, "s0/m0/grad_output/decoder.layers.2.mlp.linear_fc2/0"));
  EXPECT_FALSE(owns("operator_scale", 2, "s0/m0/output/decoder.layers.2/0"));
  EXPECT_TRUE(owns("partial_sum", 0, "s0/m0/output/decoder.layers.0.mlp.linear_fc2/0"));
  EXPECT_TRUE(owns("row", 3, "s0/m0/output/decoder.layers.3.mlp.linear_fc2/0"));
  EXPECT_TRUE(
      owns("operator_scale_proj", 0, "s0/m0/output/decoder.layers.0.self_attention.linear_proj/0"));
  EXPECT_TRUE(owns(
      "softmax_scale", 0, "s0/m0/grad_input/decoder.layers.0.self_attention.core_attention/1"));
  EXPECT_TRUE(owns("weight_grad", 2, "s0/m0/param_grad/decoder.layers.2.mlp.linear_fc2.weight/0"));
  EXPECT_TRUE(
      owns("norm_grad_shard", 0, "s0/m0/param_grad/decoder.layers.0.input_layernorm.weight/0"));
  EXPECT_TRUE(owns("common_grad_factor", {}, "s0/m0/grad_output/loss/0"));
  EXPECT_TRUE(owns("optimizer_beta1", {}, "s0/exp_avg/output_layer.weight/0"));
  EXPECT_FALSE(owns("optimizer_beta1", {}, "s0/exp_avg_sq/output_layer.weight/0"));
  EXPECT_TRUE(owns("optimizer_lr", {}, "s0/param_next/output_layer.weight/0"));
}

TEST(PlacesOf, AnOperatorAreItsGradientsToo) {
  const auto has = [](const std::string& mutant, const std::string& id) {
    const Series series{"bf16", Weights::kInit, mutant, 2};
    return Pattern("operator", places_of(series).operator_).matches(id);
  };
  EXPECT_TRUE(has("partial_sum", "s0/m0/output/decoder.layers.2.mlp.linear_fc2/0"));
  EXPECT_TRUE(has("partial_sum", "s0/m0/param_grad/decoder.layers.2.mlp.linear_fc2.weight/0"));
  EXPECT_TRUE(has("partial_sum", "s0/m0/grad_output/decoder.layers.2.mlp.activation/0"));
  EXPECT_FALSE(has("partial_sum", "s0/m0/grad_output/decoder.layers.2.mlp.linear_fc1/0"));
  EXPECT_TRUE(has("operator_scale_proj",
                  "s0/m0/grad_output/decoder.layers.2.self_attention.core_attention/0"));
  EXPECT_FALSE(has("weight_grad", "s0/m0/output/decoder.layers.2.mlp.linear_fc2/0"));
}

TEST(Plan, OfAllKeysHasTheCleanRunsThatARateOfAlarmsNeeds) {
  const Plan plan = make_plan({});
  std::map<std::string, int> runs;
  for (const CleanRun& run : plan.cleans) {
    ++runs[plan.settings.at(run.setting).precision];
  }
  EXPECT_GE(runs["bf16"], 300);
  EXPECT_GE(runs["f32"], 100);
  EXPECT_GE(runs["fp8"], 100);
  for (std::size_t i = 0; i < plan.settings.size(); ++i) {
    EXPECT_EQ(plan.cleans[i].setting, i);
    EXPECT_EQ(plan.cleans[i].layout, plan.layout);
  }
}

TEST(Plan, OfNoKeyIsAnError) {
  EXPECT_THROW(static_cast<void>(make_plan({.keys = "bf17"})), UsageError);
  EXPECT_THROW(static_cast<void>(make_plan({.keys = "("})), UsageError);
}

TEST(HalfDecades, AreWhatOneWouldWriteAndReachEveryGoal) {
  EXPECT_THAT(half_decades("bf16"),
              ElementsAre(1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1, 1.0));
  for (const Key& key : all_keys()) {
    EXPECT_THAT(half_decades(key.precision), ::testing::Contains(key.goal)) << key.name;
  }
}

TEST(FirstFound, IsFoundInFewSteps) {
  for (std::size_t first = 0; first <= 9; ++first) {
    int asked = 0;
    EXPECT_EQ(first_found(9,
                          [&](std::size_t i) {
                            ++asked;
                            return i >= first;
                          }),
              first);
    EXPECT_LE(asked, 4);
  }
}

TEST(Search, WantsAMutantFoundInAllBatches) {
  const std::vector<Observation> cleans(2, seen({}));
  // T2 finds it from 3 in the first batch and from 5 in the second one; nothing else does.
  Search search(9, cleans, [](std::size_t magnitude, std::size_t batch) {
    return magnitude >= (batch == 0 ? 3U : 5U) ? seen({"T2", "any"}) : seen({});
  });
  const auto smallest = search.smallest();
  EXPECT_EQ(smallest.at("T2"), 5U);
  EXPECT_EQ(smallest.at("any"), 5U);
  EXPECT_EQ(smallest.at("cosine"), std::nullopt);
}

TEST(Search, RunsNothingTwiceAndNotAll) {
  std::set<std::pair<std::size_t, std::size_t>> run;
  Search search(9, std::vector<Observation>(4, seen({})), [&](std::size_t i, std::size_t batch) {
    EXPECT_TRUE(run.insert({i, batch}).second);
    return i >= 4 ? seen({"T2", "any", "cosine"}) : seen({});
  });
  EXPECT_EQ(search.smallest().at("T2"), 4U);
  EXPECT_LT(run.size(), 36U);
  EXPECT_EQ(search.observations().size(), run.size());
}

TEST(Search, BelievesNoDetectorThatCleanRunsTrip) {
  const std::vector<Observation> cleans = {seen({}), seen({"cosine"})};
  Search search(
      3, cleans, [](std::size_t /*magnitude*/, std::size_t /*batch*/) { return seen({"cosine"}); });
  EXPECT_EQ(search.smallest().at("cosine"), std::nullopt);
}

TEST(Search, StopsWhereCleanRunsHaveNoVerdict) {
  Observation clean = seen({});
  clean.problem = "the candidate crashed";
  Search search(3, {clean}, [](std::size_t /*magnitude*/, std::size_t /*batch*/) -> Observation {
    throw std::logic_error("ran a mutant");
  });
  EXPECT_EQ(search.smallest().at("T2"), std::nullopt);
}

// --- reading of reports ------------------------------------------------------------------------

const Places kOwn = {R"(s0/m0/output/decoder\.layers\.2\.mlp\.linear_fc2/0)",
                     R"(s0/m0/(output|param_grad)/decoder\.layers\.2\.mlp\.linear_fc2.*)"};
constexpr const char* kOwnId = "s0/m0/output/decoder.layers.2.mlp.linear_fc2/0";
constexpr const char* kLaterId = "s0/m0/loss/loss/0";

nlohmann::json tensor_of(const std::string& id,
                         const std::string& tier,
                         const std::string& status) {
  const bool fails = status != "within" && status != "incomplete" && status != "not_judged";
  const nlohmann::json check = {{"question", "whole"}, {"tier", tier}, {"holds", !fails}};
  return {{"id", id},
          {"tier", tier},
          {"status", status},
          {"allowed", false},
          {"finding", status == "diverged"},
          {"checks", nlohmann::json::array({check})}};
}

nlohmann::json report_of(const std::vector<nlohmann::json>& tensors,
                         const std::string& first = "") {
  nlohmann::json report = {{"tensors", tensors}, {"first_divergence", nullptr}};
  if (!first.empty()) {
    report["first_divergence"] = {{"id", first}};
  }
  return report;
}

TensorVerdict own_tensor() {
  TensorVerdict tensor;
  tensor.id = parse_tensor_id(kOwnId);
  return tensor;
}

// The own tensor, of which a question was answered with no.
TensorVerdict wrong_in(Question question) {
  TensorVerdict tensor = own_tensor();
  tensor.add(failed(question, "made up"));
  return tensor;
}

nlohmann::json written(const Report& report) {
  std::ostringstream out;
  write_json(out, report);
  return nlohmann::json::parse(out.str());
}

Observation of_check(const nlohmann::json& report, const Places& places) {
  Observation observation;
  add_check(report, places, observation);
  return observation;
}

Observation of_noise(const nlohmann::json& report, const Places& places) {
  Observation observation;
  add_without_forced(report, places, observation);
  return observation;
}

TEST(AddCheck, FindsWhereTheFirstDivergenceIs) {
  const auto report = report_of(
      {tensor_of(kOwnId, "T2", "inherited"), tensor_of(kLaterId, "T2", "diverged")}, kLaterId);
  EXPECT_THAT(of_check(report, {}).flagged, UnorderedElementsAre("any", "any@operator"));
  EXPECT_THAT(of_check(report, kOwn).flagged, IsEmpty()) << "found, but elsewhere";
  EXPECT_THAT(of_check(report_of({tensor_of(kOwnId, "T2", "diverged")}, kOwnId), kOwn).flagged,
              UnorderedElementsAre("any", "any@operator"));
  EXPECT_THAT(of_check(report_of({}), {}).flagged, IsEmpty());
  const std::string gradient = "s0/m0/param_grad/decoder.layers.2.mlp.linear_fc2.weight/0";
  EXPECT_THAT(of_check(report_of({tensor_of(gradient, "T2", "diverged")}, gradient), kOwn).flagged,
              UnorderedElementsAre("any@operator"));
}

TEST(AddCheck, CountsATierAtTheMutantsTensorOnly) {
  const auto report = report_of(
      {tensor_of(kLaterId, "T0", "diverged"), tensor_of(kOwnId, "T1", "diverged")}, kLaterId);
  EXPECT_THAT(of_check(report, {}).flagged, IsSupersetOf({"T0", "T1", "any"}));
  EXPECT_THAT(of_check(report, kOwn).flagged, UnorderedElementsAre("T1", "T1@operator"));
  const std::string gradient = "s0/m0/param_grad/decoder.layers.2.mlp.linear_fc2.weight/0";
  EXPECT_THAT(of_check(report_of({tensor_of(gradient, "T1", "diverged")}), kOwn).flagged,
              UnorderedElementsAre("T1@operator"));
  const std::string part = "s0/m0/output/decoder";
  EXPECT_THAT(of_check(report, {part, part}).flagged, IsEmpty()) << "ids are whole";
}

// Symptom: `not_judged` was no harmless status here, and every tensor of a dyadic pass was flagged.
TEST(AddCheck, KnowsWhichStatusIsAFinding) {
  Report harmless;
  harmless.tensors = {own_tensor()};
  for (const Excuse excuse : {Excuse::kReplaced,
                              Excuse::kHarmlessScale,
                              Excuse::kBehindFlip,
                              Excuse::kInherited,
                              Excuse::kAllowed,
                              Excuse::kUntraced,
                              Excuse::kDeclared}) {
    harmless.tensors.push_back(wrong_in(Question::kShape));
    harmless.tensors.back().excuse(excuse);
  }
  for (const Excuse excuse : {Excuse::kInterrupted, Excuse::kRounds}) {
    harmless.tensors.push_back(own_tensor());
    harmless.tensors.back().excuse(excuse);
  }
  EXPECT_THAT(of_check(written(harmless), {}).flagged, IsEmpty());
  EXPECT_THAT(of_noise(written(harmless), {}).flagged, IsEmpty());
  for (const bool is_in_reference : {true, false}) {
    for (const Question question : {Question::kShape, Question::kPresence}) {
      Report report;
      report.tensors = {wrong_in(question)};
      report.tensors[0].is_in_reference = is_in_reference;
      report.first_divergence = 0;
      EXPECT_THAT(of_check(written(report), kOwn).flagged,
                  UnorderedElementsAre("T0", "T0@operator", "any", "any@operator"))
          << name_of(report.tensors[0].status());
    }
  }
}

// Symptom: the figures of T1 were put together a second time from the fields of `operator`, so that
// a question added to T1 was counted nowhere.
TEST(AddCheck, TakesWhatEveryCheckOfOperatorsSays) {
  nlohmann::json tensor = tensor_of(kOwnId, "T2", "diverged");
  const auto with = [&](const std::string& question, bool holds) {
    nlohmann::json changed = tensor;
    changed["checks"].push_back({{"question", question}, {"tier", "T1"}, {"holds", holds}});
    return of_check(report_of({changed}), kOwn);
  };
  EXPECT_THAT(of_check(report_of({tensor}), kOwn).present, Not(IsSupersetOf({"T1"})));
  EXPECT_THAT(with("operator", true).present, IsSupersetOf({"T0", "T1", "T1@operator", "any"}));
  EXPECT_THAT(with("operator", true).flagged, IsEmpty());
  for (const char* question : {"operator", "operator_slice", "operator_factor", "some_new_one"}) {
    EXPECT_THAT(with(question, false).flagged, UnorderedElementsAre("T1", "T1@operator"))
        << question;
  }
}

// --- the ledger of limits ----------------------------------------------------------------------

// One tensor of which one question was asked.
Report judged_once(double value, double bound) {
  Check check;
  check.question = Question::kWhole;
  check.origin = BoundOrigin::kNoise;
  check.value = value;
  check.bound = bound;
  check.holds = value <= bound;
  Report report;
  report.tensors.resize(1);
  report.tensors[0].comparison.emplace().error = value;
  report.tensors[0].add(check);
  if (!check.holds) {
    report.first_divergence = 0;
  }
  return report;
}

TEST(AddEffect, SaysWhatARowBuysAndCosts) {
  RowEffect effect;
  add_effect(judged_once(1.0, 4.0), judged_once(1.0, 4.0), "same", effect);
  EXPECT_EQ(effect.tensors, 0U);
  add_effect(judged_once(1.0, 4.0), judged_once(1.0, 2.0), "smaller", effect);
  add_effect(judged_once(1.0, 4.0), judged_once(1.0, 0.5), "alarm", effect);
  EXPECT_THAT(effect.alarms, ElementsAre("alarm"));
  EXPECT_THAT(effect.runs, ElementsAre("alarm", "smaller"));
  EXPECT_THAT(effect.growth, ElementsAre(2.0, 8.0));
  EXPECT_EQ(effect.largest_growth(), 8.0);
  add_effect(judged_once(1.0, 4.0), judged_once(1.0, 0.0), "must be equal", effect);
  EXPECT_EQ(effect.exempt, 1U);
  EXPECT_EQ(effect.tensors, 3U);
}

TEST(LedgerPage, SaysWhatNeedsARow) {
  Ablation ablation;
  ablation.needed.emplace(Allowance::kStorage, "precision=bf16 tp=2");
  ablation.together = {Allowance::kClippingNorm, Allowance::kUpdateFlips};
  const std::string page = ledger_page(ablation, "./dev roc --ablate");
  EXPECT_THAT(page, HasSubstr("| storage | 0 | 0 (0) | - | `precision=bf16 tp=2` |"));
  EXPECT_THAT(page, HasSubstr("| clipping-norm | 0 | 0 (0) | - | its own case: `"));
  EXPECT_THAT(page, HasSubstr("| update-flips | 0 | 0 (0) | - | **nothing** |"));
}

// One check at 0.6 of its limit: chance takes one in 1000 there, and no kernel factor.
TEST(Shares, CountWhatReachesAShareAndWhatIsExpectedTo) {
  Report report = judged_once(0.6, 1.0);
  report.tensors[0].checks[0].terms = {{Term::kLimit, 4.0},
                                       {Term::kFreedom, 10.0},
                                       {Term::kFreedomOfEstimate, 50.0},
                                       {Term::kByChance, 1e-3}};
  Shares shares;
  shares.add(report);
  const auto curve = shares.json().at("whole");
  EXPECT_EQ(curve.at("checks"), 1);
  EXPECT_EQ(curve.at("observed")[11], 1.0);
  EXPECT_EQ(curve.at("observed")[13], 0.0);
  EXPECT_NEAR(curve.at("expected")[0].get<double>(), 1.0, 1e-9);
  EXPECT_NEAR(curve.at("expected")[5].get<double>(), 0.456, 0.01);  // of F(10, 50) beyond 1
  EXPECT_THAT(shares.plot(), HasSubstr("T2, whole tensors"));
}

TEST(AblationCases, CanAllBeRun) {
  const std::vector<std::string> cases = ablation_cases(2, 9301);
  EXPECT_THAT(cases, SizeIs(::testing::Gt(6U)));
  for (const std::string& text : cases) {
    EXPECT_EQ(fuzz_layouts::why_impossible(fuzz_layouts::case_of(text)), "") << text;
  }
}

// Symptom: T2 was read from the report of a check with forced passes, where it is excused.
TEST(AddWithoutForced, TakesTheVerdictOfTheReport) {
  const auto report = report_of(
      {tensor_of(kOwnId, "T2", "within"), tensor_of(kLaterId, "T2", "diverged")}, kLaterId);
  EXPECT_THAT(of_noise(report, {}).flagged, UnorderedElementsAre("T2", "T2@operator"));
  EXPECT_THAT(of_noise(report, kOwn).flagged, IsEmpty());
  EXPECT_THAT(of_noise(report, kOwn).present, UnorderedElementsAre("T2", "T2@operator"));
  EXPECT_THAT(of_noise(report_of({tensor_of(kOwnId, "T2", "diverged")}, kOwnId), kOwn).flagged,
              UnorderedElementsAre("T2", "T2@operator"));
}

TEST(AddRules, NamesThoseThatFailFirstAtATensorThatCounts) {
  testing::RuleHits hits;
  hits[1] = kLaterId;
  hits[2] = kOwnId;
  Observation clean;
  add_rules(hits, {}, clean);
  EXPECT_THAT(clean.present, SizeIs(testing::kRules));
  EXPECT_THAT(clean.flagged, UnorderedElementsAre("cosine", "frobenius"));
  Observation mutant;
  add_rules(hits, kOwn, mutant);
  EXPECT_THAT(mutant.flagged, ElementsAre("frobenius"));
}

// Two layers of one mutant and one clean run.
class Figures : public ::testing::Test {
 protected:
  Figures() {
    plan_.keys = {{"bf16_t2_row", "bf16", "T2", {"row"}, 0.03}};
    plan_.series = {{"bf16", Weights::kInit, "row", 0}, {"bf16", Weights::kInit, "row", 3}};
    plan_.settings = {{"bf16", Weights::kInit, 1}};
    plan_.cleans = {{0, "--tp 2"}};
    plan_.seeds = {1};
    outcomes_.cleans = {seen({})};
    outcomes_.series.resize(2);
    outcomes_.series[0].smallest = {{"T2", 0.01}, {"any", 0.01}, {"cosine", 0.3}};
    outcomes_.series[1].smallest = {{"T2", 0.03}, {"any", 0.01}, {"cosine", std::nullopt}};
    for (SeriesOutcome& series : outcomes_.series) {
      series.smallest["T2@operator"] = 0.01;
    }
    outcomes_.series[1].points = {
        {.magnitude = 1e-4, .runs = 1, .changed = 0, .flagged = {}},
        {.magnitude = 0.03, .runs = 1, .changed = 1, .flagged = {{"T2", 1}}}};
  }

  Plan plan_;
  Outcomes outcomes_;
};

TEST_F(Figures, AreTheWorstOfAllPlaces) {
  EXPECT_EQ(figure_of(plan_.keys[0], plan_, outcomes_), 0.03);
  EXPECT_TRUE(goals_are_met(plan_, outcomes_));
  const auto json = json_of(plan_, outcomes_, "./dev roc");
  EXPECT_EQ(json.at("bf16_t2_row"), 0.03);
  EXPECT_EQ(json.at("at_operator").at("bf16_t2_row"), 0.01);
  EXPECT_EQ(json.at("clean_runs"), 1);
  EXPECT_EQ(json.at("false_alarm_runs"), 0);
  EXPECT_EQ(json.at("series")[1].at("points")[0].at("changed"), 0);
}

TEST_F(Figures, AreNullWhereAPlaceIsNeverFound) {
  outcomes_.series[0].smallest["T2"] = std::nullopt;
  EXPECT_EQ(figure_of(plan_.keys[0], plan_, outcomes_), std::nullopt);
  EXPECT_TRUE(json_of(plan_, outcomes_, "").at("bf16_t2_row").is_null());
  EXPECT_FALSE(goals_are_met(plan_, outcomes_));
}

TEST_F(Figures, AreNullForATierThatNoReportHas) {
  plan_.keys[0].detector = "T1";
  EXPECT_EQ(figure_of(plan_.keys[0], plan_, outcomes_), std::nullopt);
}

TEST_F(Figures, GoalsAreMissedByAFalseAlarm) {
  outcomes_.cleans[0].flagged = {"T2", kAnyTier};
  EXPECT_FALSE(goals_are_met(plan_, outcomes_));
  EXPECT_EQ(json_of(plan_, outcomes_, "").at("false_alarm_runs"), 1);
}

TEST_F(Figures, GoalsAreMissedByAFigureThatIsTooLarge) {
  plan_.keys[0].goal = 0.01;
  EXPECT_FALSE(goals_are_met(plan_, outcomes_));
  plan_.magnitudes = {{"row", {0.01, 0.03}}};
  EXPECT_FALSE(goals_are_met(plan_, outcomes_)) << "of a quick plan, too";
}

// Symptom: 512 clean runs on 92 references were taken for 512 independent ones.
TEST_F(Figures, CountAReferenceOnceHoweverManyRunsShareIt) {
  plan_.settings.push_back({"bf16", Weights::kInit, 2});
  plan_.cleans = {{0, "--tp 2"}, {1, "--tp 2"}, {0, "--cp 2"}, {0, "--pp 2"}};
  outcomes_.cleans = {seen({}), seen({}), seen({kWithoutForced}), seen({kWithoutForced})};
  const CleanScore score = clean_score(plan_, outcomes_, kWithoutForced);
  EXPECT_EQ(score.runs, 4);
  EXPECT_EQ(score.alarms, 2);
  EXPECT_EQ(score.references, 2);
  EXPECT_EQ(score.alarming_references, 1);
  EXPECT_EQ(clean_score(plan_, outcomes_, kAnyTier).alarming_references, 0);
  const auto json = json_of(plan_, outcomes_, "");
  EXPECT_EQ(json.at("clean_references"), 2);
  EXPECT_EQ(json.at("without_forced").at("false_alarm_references"), 1);
  const std::string page = page_of(plan_, outcomes_, "./dev roc", "");
  EXPECT_THAT(page,
              HasSubstr("TTrace: 0 of 4 runs, 0 of 2 references; the rate of references is below "
                        "84.2 % (95 % confidence)"));
  EXPECT_THAT(page, HasSubstr("| T2 alone | 2 of 4; 1 of 2, below 98.7 % |"));
  EXPECT_THAT(summary_of(plan_, outcomes_),
              HasSubstr("with --no-forced: 2 of 4 runs, 1 of 2 references"));
}

TEST_F(Figures, GoalsAreMissedByARunWithoutAVerdict) {
  outcomes_.series[0].problems = {"the candidate hangs"};
  EXPECT_FALSE(goals_are_met(plan_, outcomes_));
  EXPECT_THAT(page_of(plan_, outcomes_, "./dev roc", ""), HasSubstr("the candidate hangs"));
}

TEST_F(Figures, PageShowsEveryDetectorAndWhatWasRoundedAway) {
  const std::string page = page_of(plan_, outcomes_, "./dev roc", "roc.svg");
  EXPECT_THAT(page, HasSubstr("| `bf16_t2_row` | 0.03 | 0.03 | met | 0.01 |"));
  EXPECT_THAT(page, HasSubstr("| any tier | any tier, its operator | T2 alone | cosine |"));
  EXPECT_THAT(page, HasSubstr("| bf16 | `row` | init | 0.01 | - | 0.03 | - |"));
  EXPECT_THAT(page, HasSubstr("row, layer 3, bf16, init at 0.0001: 1 of 1 runs"));
  EXPECT_THAT(page, HasSubstr("(roc.svg)"));
  EXPECT_THAT(page, Not(HasSubstr("without a verdict")));
}

TEST_F(Figures, PlotHasAMarkForEveryDetectorInEveryRow) {
  const std::string plot = plot_of(plan_, outcomes_);
  std::size_t circles = 0;
  for (std::size_t at = plot.find("<circle"); at != std::string::npos;
       at = plot.find("<circle", at + 1)) {
    ++circles;
  }
  EXPECT_EQ(circles, 4U * 2U);  // any, operator, T2, cosine; in the legend and in the only row
  EXPECT_THAT(plot, HasSubstr("bf16 row"));
  EXPECT_EQ(plot.substr(plot.size() - 7), "</svg>\n");
}

}  // namespace
}  // namespace ttrace::roc
