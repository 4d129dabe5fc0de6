// The list of bugs, and what runs for which of them.
#include "scoreboard/plan.h"

#include "analysis/findings/diagnosis.h"
#include "support/temporary_directory.h"

#include <ttrace/error.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <string>

namespace ttrace::scoreboard {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::SizeIs;

CataloguedBug listed_bug(const std::string& name, const std::string& layout) {
  return {.name = name,
          .chapter = "B.1",
          .rows = {"B01"},
          .source = "a project's issue #1",
          .layout = layout,
          .config = {},
          .steps = 1,
          .precisions = {"bf16", "f32"},
          .expected = "s0/m0/output/decoder/0",
          .hint = "missing_reduction|none"};
}

Catalogue three_bugs() {
  return {.chapters = {{"B.1", "Reductions"}},
          .bugs = {listed_bug("first", "--tp 2"),
                   listed_bug("second", "--tp 2"),
                   listed_bug("third", "--dp 2")}};
}

TEST(Catalogue, IsReadFromTheListOfTheProgram) {
  const testing::TemporaryDirectory folder;
  std::ofstream(folder / "bugs.yaml") << R"(
chapters: {B.1: Reductions}
paper: {T01: {known: low, why: nothing is known}}
bugs:
- {name: one, code: pending, chapter: B.1, rows: [T01, B02], source: s, layout: "", config: {model.frozen: [0], model.tied: true},
   steps: 2, precisions: [fp8], expected: 'output/.*', hint: none, difficulty: subtle, axis: [etp, tp], factor: 0.5,
   ranks: [1], redeclared: {date: 2026-11-22, reason: a new record, expected: 'operand/.*'}}
- {name: two, chapter: B.1, rows: [B03], source: s, layout: --tp 2, config: {}, steps: 1, precisions: [f32],
   expected: a, hint: b, difficulty: medium, cause: [stale, optimizer], unlocated: {f32: below the bound}}
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
  EXPECT_EQ(one.difficulty, "subtle");
  EXPECT_THAT(one.axis, ElementsAre("etp", "tp"));
  EXPECT_EQ(one.factor, 0.5);
  EXPECT_THAT(one.ranks, ElementsAre(1));
  ASSERT_TRUE(one.redeclared.has_value());
  EXPECT_EQ(one.redeclared->date, "2026-11-22");
  EXPECT_EQ(one.redeclared->reason, "a new record");
  EXPECT_EQ(one.redeclared->expected, "operand/.*");
  EXPECT_EQ(one.redeclared->hint, "");
  EXPECT_EQ(catalogue.paper.at("T01").known, "low");
  EXPECT_FALSE(catalogue.bugs[1].pending);
  EXPECT_FALSE(catalogue.bugs[1].redeclared.has_value());
  EXPECT_FALSE(catalogue.bugs[1].factor.has_value());
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

}  // namespace
}  // namespace ttrace::scoreboard
