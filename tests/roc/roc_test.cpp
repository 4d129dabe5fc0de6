// The harness's own logic, without processes: plan, search, reading of reports, figures.
#include "roc/figures.h"
#include "roc/observe.h"
#include "roc/page.h"
#include "roc/plan.h"
#include "roc/search.h"

#include <ttrace/error.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace ttrace::roc {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
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

TEST(Plan, QuickIsOneSeriesAtTwoMagnitudes) {
  const Plan plan = make_plan({.quick = true});
  ASSERT_THAT(plan.series, SizeIs(1));
  EXPECT_THAT(plan.settings, SizeIs(1));
  EXPECT_THAT(magnitudes_of(plan, plan.series.front()), ElementsAre(1e-3, 1e-1));
  EXPECT_FALSE(plan.needs_training());
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

nlohmann::json tensor_of(const std::string& tier, const std::string& status) {
  return {{"tier", tier}, {"status", status}, {"allowed", false}, {"error", 1.0}, {"bound", 2.0}};
}

TEST(AddTiers, AFindingIsThatOfTheReport) {
  nlohmann::json allowed = tensor_of("T0", "diverged");
  allowed["allowed"] = true;
  Observation observation;
  add_tiers({{"tensors", {tensor_of("T0", "within"), allowed, tensor_of("T2", "inherited")}}},
            observation);
  EXPECT_THAT(observation.present, UnorderedElementsAre("T0", "T2", "any"));
  EXPECT_THAT(observation.flagged, IsEmpty());
  add_tiers({{"tensors", {tensor_of("T0", "diverged")}}}, observation);
  EXPECT_THAT(observation.flagged, UnorderedElementsAre("T0", "any"));
}

TEST(AddTiers, EachTierIsJudgedByItsOwnFigures) {
  nlohmann::json inherited = tensor_of("T2", "inherited");
  inherited["error"] = "Inf";
  Observation noise;
  add_tiers({{"tensors", {inherited}}}, noise);
  EXPECT_THAT(noise.flagged, UnorderedElementsAre("T2"));

  nlohmann::json wrong = tensor_of("T1", "diverged");
  wrong["operator"] = {{"r", 1.0},
                       {"limit", 2.0},
                       {"slice", nullptr},
                       {"factor_in_noise", {{"deviation", -3e-3}, {"bound", 1e-3}}}};
  Observation operators;
  add_tiers({{"tensors", {wrong}}}, operators);
  EXPECT_THAT(operators.flagged, UnorderedElementsAre("T1", "any"));
  wrong["operator"]["slice"] = {{"error", 2.0}, {"bound", 1.0}};
  wrong["operator"]["factor_in_noise"] = nullptr;
  Observation rows;
  add_tiers({{"tensors", {wrong}}}, rows);
  EXPECT_THAT(rows.flagged, UnorderedElementsAre("T1", "any"));
}

TEST(AddRules, NamesThoseThatFail) {
  testing::RuleHits hits;
  hits[1] = "s0/m0/loss//0";
  Observation observation;
  add_rules(hits, observation);
  EXPECT_THAT(observation.present, SizeIs(testing::kRules));
  EXPECT_THAT(observation.flagged, ElementsAre("cosine"));
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

TEST_F(Figures, GoalsAreMissedByARunWithoutAVerdict) {
  outcomes_.series[0].problems = {"the candidate hangs"};
  EXPECT_FALSE(goals_are_met(plan_, outcomes_));
  EXPECT_THAT(page_of(plan_, outcomes_, "./dev roc", ""), HasSubstr("the candidate hangs"));
}

TEST_F(Figures, PageShowsEveryDetectorAndWhatWasRoundedAway) {
  const std::string page = page_of(plan_, outcomes_, "./dev roc", "roc.svg");
  EXPECT_THAT(page, HasSubstr("| `bf16_t2_row` | 0.03 | 0.03 | met |"));
  EXPECT_THAT(page, HasSubstr("| bf16 | `row` | init | 0.03 | 0.01 | - |"));
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
  EXPECT_EQ(circles, 3U * 2U);  // T2, any, cosine; in the legend and in the only row
  EXPECT_THAT(plot, HasSubstr("bf16 row"));
  EXPECT_EQ(plot.substr(plot.size() - 7), "</svg>\n");
}

}  // namespace
}  // namespace ttrace::roc
