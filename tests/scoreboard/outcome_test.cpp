// Tests how the outcomes of runs add up, and what the pages say about them.
#include "scoreboard/outcome.h"

#include "scoreboard/page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <vector>

namespace ttrace::scoreboard {
namespace {

using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::Not;
using ::testing::SizeIs;

CataloguedBug scored_bug(const std::string& name, const std::string& layout) {
  return {.name = name,
          .chapter = "B.1",
          .rows = {"B01"},
          .source = "a project's issue #1",
          .layout = layout,
          .config = {},
          .precisions = {"bf16"},
          .expected = "s0/m0/output/decoder/0",
          .hint = "missing_reduction|none",
          .cause = {"missing_reduction", "wrong_factor"}};
}

// --- one bug -----------------------------------------------------------------------------------

// Symptom: `output/...` was found in "s0/m0/grad_output/..." of any step and micro-batch.
TEST(IsLocated, AsksForTheWholeId) {
  const CataloguedBug bug = scored_bug("first", "--tp 2");
  EXPECT_TRUE(is_located(bug, "s0/m0/output/decoder/0"));
  EXPECT_FALSE(is_located(bug, "s0/m0/grad_output/decoder/0"));
  EXPECT_FALSE(is_located(bug, "s0/m1/output/decoder/0"));
  EXPECT_FALSE(is_located(bug, "s1/m0/output/decoder/0"));
  EXPECT_FALSE(is_located(bug, "s0/m0/output/decoder/0~"));
  EXPECT_FALSE(is_located(bug, ""));
}

// Symptom: a declaration that had been edited after the runs counted as one made beforehand.
TEST(IsLocated, IsNeverABugWhoseDeclarationWasChanged) {
  CataloguedBug bug = scored_bug("first", "--tp 2");
  bug.redeclared = {.date = "2026-11-22",
                    .reason = "a new record",
                    .expected = "s0/m0/operand/decoder/0",
                    .hint = ""};
  EXPECT_FALSE(is_located(bug, "s0/m0/output/decoder/0"));
  EXPECT_FALSE(is_located(bug, "s0/m0/operand/decoder/0"));
}

TEST(TermsRight, WantsEveryDeclaredTermAndNoOtherAxisOrRank) {
  CataloguedBug bug = scored_bug("first", "--tp 2");
  EXPECT_EQ(terms_right(bug, {.axes = {"tp"}}), std::nullopt) << "none is declared";
  bug.axis = {"etp", "tp"};
  EXPECT_EQ(terms_right(bug, {.axes = {"tp"}}), true);
  EXPECT_EQ(terms_right(bug, {.axes = {"dp", "tp"}}), false);
  EXPECT_EQ(terms_right(bug, {}), false);
  bug.factor = 2.0;
  EXPECT_EQ(terms_right(bug, {.axes = {"tp"}}), false);
  EXPECT_EQ(terms_right(bug, {.axes = {"tp"}, .factor = 2.009}), true);
  EXPECT_EQ(terms_right(bug, {.axes = {"tp"}, .factor = 2.02}), false);
  bug.factor = 0.0;
  EXPECT_EQ(terms_right(bug, {.axes = {"tp"}, .factor = 0.004}), true);
  EXPECT_EQ(terms_right(bug, {.axes = {"tp"}, .factor = 0.006}), false);
  bug.axis = {};
  bug.factor = {};
  bug.ranks = {1};
  EXPECT_EQ(terms_right(bug, {.ranks = {1}}), true);
  EXPECT_EQ(terms_right(bug, {.ranks = {0, 1}}), false);
}

testing::CheckResult diverged_at(const std::string& id, const std::string& signature) {
  testing::CheckResult result;
  result.diverged = true;
  result.first_id = id;
  result.signature = signature;
  const nlohmann::json named = {
      {"axes", {"tp"}}, {"factors", nlohmann::json::array()}, {"ranks", {0, 1}}};
  result.report = {{"diagnoses", {{{"named", named}}}}};
  return result;
}

TEST(OutcomeOf, MeasuresTheCauseInFourWays) {
  CataloguedBug bug = scored_bug("first", "--tp 2");
  bug.axis = {"tp"};
  const auto outcome = [&](const std::string& signature) {
    const auto result = diverged_at("s0/m0/output/decoder/0", signature);
    return outcome_of(bug, {}, result, result);
  };
  const BugOutcome exact = outcome("missing_reduction");
  EXPECT_TRUE(exact.found && exact.located && exact.hint_right);
  EXPECT_TRUE(exact.cause_exact && exact.cause_right);
  EXPECT_EQ(exact.terms_right, true);
  const BugOutcome accepted = outcome("wrong_factor");
  EXPECT_FALSE(accepted.hint_right || accepted.cause_exact);
  EXPECT_TRUE(accepted.cause_right);
  const BugOutcome none = outcome("none");
  EXPECT_TRUE(none.hint_right) << "the declaration allows that";
  EXPECT_FALSE(none.cause_exact || none.cause_right);
  bug.cause = {};
  EXPECT_FALSE(outcome("missing_reduction").cause_right) << "no signature describes it";
}

TEST(OutcomeOf, JudgesWithoutForcedPassesApart) {
  const CataloguedBug bug = scored_bug("first", "--tp 2");
  const auto whole = diverged_at("s0/m0/output/decoder/0", "none");
  const auto late = diverged_at("s0/m0/loss/loss/0", "none");
  const BugOutcome elsewhere = outcome_of(bug, {}, whole, late);
  EXPECT_TRUE(elsewhere.located);
  EXPECT_TRUE(elsewhere.without_forced.found);
  EXPECT_FALSE(elsewhere.without_forced.located);
  EXPECT_EQ(elsewhere.without_forced.first_id, "s0/m0/loss/loss/0");
  CleanOutcome alarm;
  alarm.alarm_without_forced = true;
  const BugOutcome alarming = outcome_of(bug, alarm, whole, whole);
  EXPECT_TRUE(alarming.found);
  EXPECT_FALSE(alarming.without_forced.found) << "the clean run raises the same alarm";
  EXPECT_FALSE(outcome_of(bug, {}, whole, {}).without_forced.found);
}

// --- all of them -------------------------------------------------------------------------------

// Three bugs in BF16 and on one reference: located, found elsewhere, missed. The first two share a
// clean run, which raises an alarm.
struct Scored {
  Catalogue catalogue = {.chapters = {{"B.1", "Reductions"}},
                         .bugs = {scored_bug("first", "--tp 2"),
                                  scored_bug("second", "--tp 2"),
                                  scored_bug("third", "--dp 2")}};
  Plan plan;
  Outcomes outcomes;

  Scored() {
    catalogue.bugs[1].difficulty = "subtle";
    plan = make_plan(catalogue, {});
    outcomes.cleans.resize(plan.cleans.size());
    outcomes.bugs.resize(plan.bugs.size());
    outcomes.cleans[1].alarm = true;
    outcomes.cleans[1].diagnoses = 2;
    outcomes.cleans[1].first_id = "s0/m0/loss/loss/0";
    outcomes.cleans[1].rules[0] = "s0/m0/loss/loss/0";
    for (std::size_t i = 0; i < plan.bugs.size(); ++i) {
      BugOutcome& outcome = outcomes.bugs[i];
      outcome.triggered = true;
      const std::string& name = catalogue.bugs[plan.bugs[i].bug].name;
      outcome.found = name != "third";
      outcome.located = outcome.hint_right = outcome.cause_right = name == "first";
      outcome.signature = name == "first" ? "wrong_factor" : "none";
      outcome.first_id = name == "first" ? "s0/m0/output/decoder/0" : "s0/m0/loss/loss/0";
      outcome.rules[0] = outcome.first_id;
    }
  }

  [[nodiscard]] BugOutcome& of(const std::string& name) {
    for (std::size_t i = 0; i < plan.bugs.size(); ++i) {
      if (catalogue.bugs[plan.bugs[i].bug].name == name) {
        return outcomes.bugs[i];
      }
    }
    throw std::logic_error("no bug " + name);
  }
  [[nodiscard]] std::string page() const {
    return page_of(catalogue, plan, outcomes, "./dev scoreboard");
  }
};

TEST(Outcomes, AddUp) {
  Scored scored;
  scored.of("first").terms_right = true;
  scored.of("second").terms_right = false;
  scored.of("second").hint_right = true;
  scored.of("second").without_forced = {.found = true, .located = true, .first_id = "x"};
  const Score score = score_of(scored.catalogue, scored.plan, scored.outcomes);
  EXPECT_EQ(score.runs, 3);
  EXPECT_EQ(score.triggered, 3);
  EXPECT_EQ(score.found, 2);
  EXPECT_EQ(score.located, 1);
  EXPECT_EQ(score.found_without_forced, 1);
  EXPECT_EQ(score.located_without_forced, 1);
  EXPECT_EQ(score.hints_right, 2);
  EXPECT_EQ(score.hints_of_nothing, 1);
  EXPECT_EQ(score.causes_exact, 0);
  EXPECT_EQ(score.causes_right, 1);
  EXPECT_EQ(score.with_terms, 2);
  EXPECT_EQ(score.terms_right, 1);
  const Score subtle =
      score_of(scored.catalogue, scored.plan, scored.outcomes, {.difficulty = "subtle"});
  EXPECT_EQ(subtle.runs, 1);
  EXPECT_EQ(subtle.located, 0);
  EXPECT_EQ(score_of(scored.catalogue, scored.plan, scored.outcomes, {.precision = "f32"}).runs, 0);
}

TEST(Outcomes, OfRulesAddUp) {
  const Scored scored;
  const RuleScore rule = rule_score_of(scored.catalogue, scored.plan, scored.outcomes, 0, "bf16");
  EXPECT_EQ(rule.found, 3);
  EXPECT_EQ(rule.told_apart, 1) << "the rule fails the clean run of two of the three";
  EXPECT_EQ(rule.located, 1);
  EXPECT_EQ(rule.false_alarms, 1);
}

// Symptom: 109 clean runs on 48 references were taken for 109 independent ones.
TEST(Outcomes, CountAReferenceOnceHoweverManyRunsShareIt) {
  Scored scored;
  scored.outcomes.cleans[0].alarm_without_forced = true;
  scored.outcomes.cleans[1].alarm_without_forced = true;
  const CleanScore shared = clean_score_of(scored.plan, scored.outcomes);
  EXPECT_EQ(shared.runs, 2);
  EXPECT_EQ(shared.references, 1);
  EXPECT_EQ(shared.alarms.runs, 1);
  EXPECT_EQ(shared.alarms.references, 1);
  EXPECT_EQ(shared.without_forced.runs, 2);
  EXPECT_EQ(shared.without_forced.references, 1);
  EXPECT_EQ(shared.diagnoses, 2);
  EXPECT_EQ(clean_score_of(scored.plan, scored.outcomes, "f32").runs, 0);
  scored.plan.settings.push_back(scored.plan.settings.front());
  scored.plan.cleans[0].setting = 1;
  const CleanScore apart = clean_score_of(scored.plan, scored.outcomes);
  EXPECT_EQ(apart.references, 2);
  EXPECT_EQ(apart.alarms.references, 1);
  EXPECT_EQ(apart.without_forced.references, 2);
  scored.outcomes.cleans[0].problem = "its reference failed";
  EXPECT_EQ(clean_score_of(scored.plan, scored.outcomes).references, 1);
}

TEST(Outcomes, MeetTheGoalsOnlyWhereEveryRunHasAVerdict) {
  Scored scored;
  const auto met = [&](const Goals& goals) {
    return goals_are_met(scored.catalogue, scored.plan, scored.outcomes, goals);
  };
  EXPECT_FALSE(met({}));
  scored.outcomes.cleans[1].alarm = false;
  for (BugOutcome& bug : scored.outcomes.bugs) {
    bug.found = bug.located = true;
  }
  EXPECT_TRUE(met({}));
  EXPECT_TRUE(met(kAllOfThem));
  scored.outcomes.bugs[0].problem = "its program was ended by signal 11";
  EXPECT_FALSE(met({}));
  scored.outcomes.bugs[0].problem = "";
  scored.outcomes.bugs[0].triggered = false;
  EXPECT_FALSE(met({})) << "its code does nothing any more";
}

// Symptom: the fixed subset passed with one of its bugs in ten missed or found elsewhere.
TEST(Outcomes, OfTheSubsetMustAllBeLocated) {
  const CataloguedBug bug = scored_bug("any", "--tp 2");
  const Catalogue catalogue{.chapters = {{"B.1", ""}}, .bugs = std::vector(20, bug)};
  const Plan plan = make_plan(catalogue, {});
  Outcomes outcomes;
  outcomes.cleans.resize(plan.cleans.size());
  outcomes.bugs.resize(plan.bugs.size());
  for (BugOutcome& outcome : outcomes.bugs) {
    outcome.triggered = outcome.found = outcome.located = true;
  }
  EXPECT_TRUE(goals_are_met(catalogue, plan, outcomes, kAllOfThem));
  outcomes.bugs[0].located = false;
  EXPECT_TRUE(goals_are_met(catalogue, plan, outcomes));
  EXPECT_FALSE(goals_are_met(catalogue, plan, outcomes, kAllOfThem));
  outcomes.bugs[0].found = false;
  EXPECT_TRUE(goals_are_met(catalogue, plan, outcomes));
  EXPECT_FALSE(goals_are_met(catalogue, plan, outcomes, kAllOfThem));
}

// --- pages -------------------------------------------------------------------------------------

std::vector<std::string> keys_of(const nlohmann::ordered_json& object) {
  std::vector<std::string> names;
  for (const auto& [key, value] : object.items()) {
    names.push_back(key);
  }
  return names;
}

TEST(Page, JsonHasTheKeysThatOthersRead) {
  const Scored scored;
  const auto json = json_of(scored.catalogue, scored.plan, scored.outcomes, "./dev scoreboard");
  EXPECT_THAT(keys_of(json), IsSupersetOf({"bugs", "clean", "command", "scores", "clean_score"}));
  ASSERT_THAT(json["bugs"], SizeIs(3));
  EXPECT_THAT(keys_of(json["bugs"][0]),
              IsSupersetOf({"bug",
                            "source",
                            "layout",
                            "precision",
                            "expected",
                            "triggered",
                            "found",
                            "located",
                            "hint_right",
                            "cause_exact",
                            "cause_right",
                            "terms_right",
                            "redeclared",
                            "without_forced",
                            "named",
                            "difficulty",
                            "seconds"}));
  ASSERT_THAT(json["clean"], SizeIs(2));
  EXPECT_THAT(keys_of(json["clean"][0]),
              IsSupersetOf({"layout", "precision", "runs", "alarms", "diagnoses"}));
  EXPECT_THAT(keys_of(json["scores"]),
              IsSupersetOf({"all", "bf16", "obvious", "medium", "subtle"}));
  EXPECT_EQ(json["scores"]["all"]["causes_right"], 1);
  EXPECT_EQ(json["clean_score"]["references"], 1);
}

TEST(Page, NamesWhatWasNotLocatedAndWhatWasFoundInsteadAndWhy) {
  Scored scored;
  scored.of("third").problem = "its program hung";
  scored.catalogue.bugs[1].unlocated = {{"bf16", "0.03 of a bound of 0.17"}};
  const std::string page = scored.page();
  EXPECT_THAT(page, HasSubstr("found elsewhere | `s0/m0/output/decoder/0` | `s0/m0/loss/loss/0`"));
  EXPECT_THAT(page, HasSubstr("| 0.03 of a bound of 0.17 |"));
  EXPECT_THAT(
      page,
      HasSubstr("no verdict | `s0/m0/output/decoder/0` | its program hung | not explained |"));
  EXPECT_THAT(page, HasSubstr("Alarm: "));
}

TEST(Page, ListsAChangedDeclarationWithDateAndReason) {
  Scored scored;
  scored.of("first").located = false;
  scored.catalogue.bugs[0].redeclared = {.date = "2026-11-22",
                                         .reason = "operands are records of their own",
                                         .expected = "s0/m0/operand/decoder/0",
                                         .hint = ""};
  const std::string page = scored.page();
  EXPECT_THAT(page, HasSubstr("| `first` | bf16 | redeclared | `s0/m0/output/decoder/0` |"));
  EXPECT_THAT(page,
              HasSubstr("declared anew on 2026-11-22, after its first run, as "
                        "`s0/m0/operand/decoder/0`: operands are records of their own"));
}

TEST(Page, ShowsTheMeasuresOfTheCauseTheDeclaredOneFirst) {
  Scored scored;
  scored.of("first").terms_right = true;
  const std::string page = scored.page();
  EXPECT_THAT(page,
              HasSubstr("| precision | hint as declared | of these, where no cause is named | most "
                        "exact signature | any accepted signature | axis, factor and ranks |"));
  EXPECT_THAT(
      page, HasSubstr("| all | 1 of 2 (50 %) | 0 | 0 of 2 (0 %) | 1 of 2 (50 %) | 1 of 1 (100 %)"));
}

TEST(Page, ShowsObviousAndSubtleBugsApart) {
  Scored scored;
  scored.of("second").without_forced.found = true;
  const std::string page = scored.page();
  EXPECT_THAT(
      page, HasSubstr("| obvious | 2 | 1 of 2 (50 %) | 1 of 1 (100 %) | 0 of 2 (0 %) | 0 of 0 |"));
  EXPECT_THAT(page,
              HasSubstr("| subtle | 1 | 1 of 1 (100 %) | 0 of 1 (0 %) | 1 of 1 (100 %) | 0 of 1"));
}

TEST(Page, BoundsTheRateOfAlarmsByReferences) {
  Scored scored;
  scored.outcomes.cleans[1].alarm = false;
  scored.outcomes.cleans[0].alarm_without_forced = true;
  const std::string page = scored.page();
  EXPECT_THAT(page, HasSubstr("| all | 2 | 0 | 1 | 1 | 0 | 98 % | 1 | 100 % | 2 |"));
  EXPECT_THAT(page, HasSubstr("Alarm with `--no-forced`: --dp 2, bf16, seed 1"));
}

TEST(Page, ListsTheBugsOfThePaperAndHowWellEachRowIsKnown) {
  Scored scored;
  EXPECT_THAT(scored.page(), Not(HasSubstr("TTrace paper")));
  scored.catalogue.bugs[1].rows = {"T03", "B27"};
  scored.catalogue.bugs[2].rows = {"T04"};
  scored.catalogue.paper = {{"T03", {.known = "medium", .why = "several fit"}},
                            {"T04", {.known = "high", .why = "one fits"}},
                            {"T05", {.known = "high", .why = "one fits"}}};
  const std::string page = scored.page();
  EXPECT_THAT(page, HasSubstr("1 of 2 (50 %) rows found"));
  EXPECT_THAT(page, HasSubstr("how certain that is: 1 high, 1 medium."));
  EXPECT_THAT(page, HasSubstr("| T03 | medium | `second` | bf16: found elsewhere |"));
  EXPECT_THAT(page, HasSubstr("| T04 | high | `third` | bf16: missed |"));
}

TEST(Page, SummaryTellsBothWaysOfJudging) {
  Scored scored;
  scored.of("second").without_forced.found = true;
  const std::string text = summary_of(scored.catalogue, scored.plan, scored.outcomes);
  EXPECT_THAT(text, HasSubstr("3 runs of bugs: 3 triggered, 2 of 3 (66.7 %) found"));
  EXPECT_THAT(text, HasSubstr("with --no-forced: 1 of 3 (33.3 %) found"));
  EXPECT_THAT(text, HasSubstr("2 clean runs on 1 references: 1 alarms (0 with --no-forced)"));
}

}  // namespace
}  // namespace ttrace::scoreboard
