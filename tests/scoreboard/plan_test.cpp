// What runs for which bugs, and what the outcomes add up to.
#include "scoreboard/plan.h"

#include "analysis/findings/diagnosis.h"
#include "scoreboard/outcome.h"
#include "scoreboard/page.h"
#include "support/temporary_directory.h"

#include <ttrace/error.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <string>

namespace ttrace::scoreboard {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::IsSupersetOf;
using ::testing::Pair;
using ::testing::SizeIs;

CataloguedBug bug(const std::string& name, const std::string& layout) {
  return {.name = name,
          .chapter = "B.1",
          .rows = {"B01"},
          .source = "a project's issue #1",
          .layout = layout,
          .config = {},
          .steps = 1,
          .precisions = {"bf16", "f32"},
          .expected = "output/decoder",
          .hint = "missing_reduction|none",
          .pending = false};
}

Catalogue three_bugs() {
  return {.chapters = {{"B.1", "Reductions"}},
          .bugs = {bug("first", "--tp 2"), bug("second", "--tp 2"), bug("third", "--dp 2")}};
}

TEST(Catalogue, IsReadFromTheListOfTheProgram) {
  const testing::TemporaryDirectory folder;
  std::ofstream(folder / "bugs.yaml") << R"(
chapters: {B.1: Reductions}
bugs:
- {name: one, code: pending, chapter: B.1, rows: [T01, B02], source: s, layout: "", config: {model.frozen: [0], model.tied: true},
   steps: 2, precisions: [fp8], expected: 'output/.*', hint: none}
- {name: two, chapter: B.1, rows: [B03], source: s, layout: --tp 2, config: {}, steps: 1, precisions: [f32],
   expected: a, hint: b, cause: [stale, optimizer], unlocated: {f32: below the bound}}
)";
  const Catalogue catalogue = read_catalogue(folder / "bugs.yaml");
  ASSERT_THAT(catalogue.bugs, SizeIs(2));
  const CataloguedBug& one = catalogue.bugs[0];
  EXPECT_TRUE(one.pending);
  EXPECT_EQ(one.steps, 2);
  EXPECT_THAT(one.config, ElementsAre(Pair("model.frozen", "[0]"), Pair("model.tied", "true")));
  EXPECT_THAT(one.rows, ElementsAre("T01", "B02"));
  EXPECT_THAT(one.unlocated, IsEmpty());
  EXPECT_THAT(one.cause, IsEmpty());
  EXPECT_FALSE(catalogue.bugs[1].pending);
  EXPECT_THAT(catalogue.bugs[1].cause, ElementsAre("stale", "optimizer"));
  EXPECT_THAT(catalogue.bugs[1].unlocated, ElementsAre(Pair("f32", "below the bound")));
  EXPECT_EQ(catalogue.bugs[1].layout, "--tp 2");
}

// A slip in a name would count as a wrong diagnosis for ever.
TEST(Catalogue, NamesOnlySignaturesThatThereAreAsCauses) {
  std::set<std::string> names;
  for (auto i = 0U; i <= static_cast<unsigned>(Signature::kSource); ++i) {
    names.emplace(name_of(static_cast<Signature>(i)));
  }
  int with_cause = 0;
  for (const CataloguedBug& bug :
       read_catalogue(TTRACE_SOURCE "/examples/megatron_mini/bugs.yaml").bugs) {
    with_cause += bug.cause.empty() ? 0 : 1;
    for (const std::string& cause : bug.cause) {
      EXPECT_TRUE(names.contains(cause)) << bug.name << ": " << cause;
    }
  }
  EXPECT_GE(with_cause, 100);
}

TEST(Catalogue, ThatLacksAKeyIsAnErrorWithItsName) {
  const testing::TemporaryDirectory folder;
  std::ofstream(folder / "bugs.yaml") << "chapters: {}\nbugs:\n- {name: one}\n";
  EXPECT_THROW((void)read_catalogue(folder / "bugs.yaml"), UsageError);
}

TEST(Plan, SharesReferencesAndCleanRunsBetweenBugs) {
  const Plan plan = make_plan(three_bugs(), {});
  EXPECT_THAT(plan.settings, SizeIs(2)) << "one in BF16, one in F32";
  EXPECT_THAT(plan.cleans, SizeIs(4)) << "two layouts in each";
  EXPECT_THAT(plan.bugs, SizeIs(6));
  for (const BugCase& run : plan.bugs) {
    const std::string& layout = plan.cleans[run.clean].layout;
    EXPECT_EQ(layout, three_bugs().bugs[run.bug].layout);
  }
}

TEST(Plan, TakesReferencesApartThatTrainSomethingElse) {
  Catalogue catalogue = three_bugs();
  catalogue.bugs[0].config = {{"model.tied", "true"}};
  catalogue.bugs[1].steps = 2;
  EXPECT_THAT(make_plan(catalogue, {.precisions = {{"bf16"}}}).settings, SizeIs(3));
}

TEST(Plan, RunsBugsWithTheFirstSeedOnly) {
  const Plan plan = make_plan(three_bugs(), {.seeds = 3});
  EXPECT_THAT(plan.settings, SizeIs(6));
  EXPECT_THAT(plan.cleans, SizeIs(12));
  for (const BugCase& run : plan.bugs) {
    EXPECT_EQ(plan.settings[plan.cleans[run.clean].setting].seed, 1);
  }
}

TEST(Plan, ListsPendingBugsAndRunsNothingForThem) {
  Catalogue catalogue = three_bugs();
  catalogue.bugs[2].pending = true;
  const Plan plan = make_plan(catalogue, {});
  EXPECT_THAT(plan.not_built, ElementsAre(2));
  EXPECT_THAT(plan.cleans, SizeIs(2));
}

TEST(Plan, FilterThatLeavesNothingAndNamesThatDoNotExistAreErrors) {
  EXPECT_THAT(make_plan(three_bugs(), {.filter = "ir"}).bugs, SizeIs(4)) << "first and third";
  EXPECT_THROW((void)make_plan(three_bugs(), {.filter = "fourth"}), UsageError);
  EXPECT_THROW((void)make_plan(three_bugs(), {.filter = "("}), UsageError);
  EXPECT_THROW((void)make_plan(three_bugs(), {.names = {{"fourth"}}}), UsageError);
}

// The three bugs in BF16: located, found elsewhere, missed; the second clean run raises an alarm.
struct Scored {
  Catalogue catalogue = three_bugs();
  Plan plan = make_plan(catalogue, {.precisions = {{"bf16"}}});
  Outcomes outcomes;

  Scored() {
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
      outcome.located = outcome.hint_right = name == "first";
      outcome.found = name != "third";
      if (outcome.found) {
        outcome.cause_right = name == "first";
      }
      outcome.first_id = name == "first" ? "s0/m0/output/decoder/0" : "s0/m0/loss/loss/0";
      outcome.rules[0] = outcome.first_id;
    }
  }
};

TEST(Outcomes, AddUp) {
  const Scored scored;
  const Score score = score_of(scored.plan, scored.outcomes);
  EXPECT_EQ(score.runs, 3);
  EXPECT_EQ(score.triggered, 3);
  EXPECT_EQ(score.found, 2);
  EXPECT_EQ(score.located, 1);
  EXPECT_EQ(score.with_cause, 2);
  EXPECT_EQ(score.causes_right, 1);
  EXPECT_EQ(clean_score_of(scored.plan, scored.outcomes).diagnoses, 2);
  EXPECT_EQ(clean_score_of(scored.plan, scored.outcomes).alarms, 1);
  EXPECT_EQ(clean_score_of(scored.plan, scored.outcomes, "f32").runs, 0);
  const RuleScore rule = rule_score_of(scored.catalogue, scored.plan, scored.outcomes, 0, "bf16");
  EXPECT_EQ(rule.found, 3);
  EXPECT_EQ(rule.told_apart, 1) << "the rule fails the clean run beside two of the three";
  EXPECT_EQ(rule.located, 1);
  EXPECT_EQ(rule.false_alarms, 1);
}

TEST(Outcomes, MeetTheGoalsOnlyWhereEveryRunHasAVerdict) {
  Scored scored;
  EXPECT_FALSE(goals_are_met(scored.plan, scored.outcomes));
  scored.outcomes.cleans[1].alarm = false;
  for (BugOutcome& bug : scored.outcomes.bugs) {
    bug.found = bug.located = true;
  }
  EXPECT_TRUE(goals_are_met(scored.plan, scored.outcomes));
  scored.outcomes.bugs[0].problem = "its program was ended by signal 11";
  EXPECT_FALSE(goals_are_met(scored.plan, scored.outcomes));
}

TEST(Page, JsonHasTheKeysThatOthersRead) {
  const Scored scored;
  const auto json = json_of(scored.catalogue, scored.plan, scored.outcomes, "./dev scoreboard");
  const auto keys = [](const nlohmann::ordered_json& object) {
    std::vector<std::string> names;
    for (const auto& [key, value] : object.items()) {
      names.push_back(key);
    }
    return names;
  };
  EXPECT_THAT(keys(json),
              IsSupersetOf({"bugs", "clean", "command", "cause_declared", "cause_right"}));
  ASSERT_THAT(json["bugs"], SizeIs(3));
  EXPECT_THAT(keys(json["bugs"][0]),
              IsSupersetOf({"bug",
                            "source",
                            "layout",
                            "precision",
                            "expected",
                            "triggered",
                            "found",
                            "located",
                            "hint_right",
                            "cause_right",
                            "seconds"}));
  ASSERT_THAT(json["clean"], SizeIs(2));
  EXPECT_THAT(keys(json["clean"][0]),
              IsSupersetOf({"layout", "precision", "runs", "alarms", "diagnoses"}));
}

TEST(Page, NamesWhatWasNotLocatedAndWhatWasFoundInsteadAndWhy) {
  Scored scored;
  const auto third = std::find_if(scored.outcomes.bugs.begin(),
                                  scored.outcomes.bugs.end(),
                                  [](const BugOutcome& outcome) { return !outcome.found; });
  third->problem = "its program hung";
  scored.catalogue.bugs[1].unlocated = {{"bf16", "0.03 of a bound of 0.17"}};
  const std::string page =
      page_of(scored.catalogue, scored.plan, scored.outcomes, "./dev scoreboard");
  EXPECT_THAT(page, HasSubstr("found elsewhere | `output/decoder` | `s0/m0/loss/loss/0`"));
  EXPECT_THAT(page, HasSubstr("| 0.03 of a bound of 0.17 |"));
  EXPECT_THAT(page,
              HasSubstr("no verdict | `output/decoder` | its program hung | not explained |"));
  EXPECT_THAT(page, HasSubstr("Alarm: "));
}

TEST(Page, ListsTheBugsOfThePaper) {
  Scored scored;
  scored.catalogue.bugs[1].rows = {"T03", "B27"};
  scored.catalogue.bugs[2].rows = {"T04"};
  const std::string page =
      page_of(scored.catalogue, scored.plan, scored.outcomes, "./dev scoreboard");
  EXPECT_THAT(page, HasSubstr("1 of 2 (50 %) found"));
  EXPECT_THAT(page, HasSubstr("| T03 | `second` | bf16: found elsewhere |"));
  EXPECT_THAT(page, HasSubstr("| T04 | `third` | bf16: missed |"));
}

}  // namespace
}  // namespace ttrace::scoreboard
