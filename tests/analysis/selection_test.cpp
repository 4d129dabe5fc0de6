#include "analysis/align/selection.h"

#include <ttrace/error.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ttrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Whether the tensor is kept if `ranks` recorded it.
bool wants(Selection& selection, const std::string& id, const std::vector<int>& ranks = {0}) {
  std::vector<Shard> shards;
  for (const int rank : ranks) {
    shards.push_back({rank, nullptr, {}});
  }
  return selection.wants(parse_tensor_id(id), shards);
}

TEST(SelectionTest, WithoutRulesKeepsEverything) {
  Selection selection;
  EXPECT_TRUE(wants(selection, "s3/m1/output/a.b/0#1~", {}));
  EXPECT_THAT(selection.unused(), IsEmpty());
}

TEST(SelectionTest, OneOfTheFiltersIsEnough) {
  SelectionRules rules;
  rules.filters = {{"--filter", "fc1"}, {"--filter", "^s0/m0/loss"}};
  Selection selection(rules);
  EXPECT_TRUE(wants(selection, "s0/m0/output/mlp.fc1/0"));
  EXPECT_TRUE(wants(selection, "s0/m0/loss/loss/0"));
  EXPECT_FALSE(wants(selection, "s0/m1/loss/loss/0"));
}

TEST(SelectionTest, ExcludeWinsOverFilter) {
  SelectionRules rules;
  rules.filters = {{"--filter", "output"}};
  rules.excludes = {{"--exclude", "norm"}};
  Selection selection(rules);
  EXPECT_TRUE(wants(selection, "s0/m0/output/fc/0"));
  EXPECT_FALSE(wants(selection, "s0/m0/output/norm/0"));
}

TEST(SelectionTest, StepsEndBeforeTheLast) {
  SelectionRules rules;
  rules.steps = StepRange{1, 3};
  Selection selection(rules);
  EXPECT_FALSE(wants(selection, "s0/m0/output/fc/0"));
  EXPECT_TRUE(wants(selection, "s2/m0/output/fc/0"));
  EXPECT_FALSE(wants(selection, "s3/m0/output/fc/0"));
}

TEST(SelectionTest, KindsAndRanksBothNarrow) {
  SelectionRules rules;
  rules.kinds = {Kind::kOutput, Kind::kMainGrad};
  rules.ranks = {1, 2};
  Selection selection(rules);
  EXPECT_TRUE(wants(selection, "s0/m0/output/fc/0", {0, 1}));
  EXPECT_FALSE(wants(selection, "s0/m0/output/fc/0", {0, 3}));
  EXPECT_FALSE(wants(selection, "s0/param/fc.weight/0", {1}));
}

TEST(SelectionTest, TensorThatNobodyRecordedBelongsToNoRank) {
  SelectionRules rules;
  rules.ranks = {0};
  Selection selection(rules);
  EXPECT_FALSE(wants(selection, "s0/m0/output/fc/0", {}));
}

TEST(SelectionTest, RulesThatNeverAppliedAreNamed) {
  SelectionRules rules;
  rules.filters = {{"--filter", "fc"}, {"--filter", "nosuch"}};
  rules.excludes = {{"--exclude", "neither"}};
  rules.steps = StepRange{5, 6};
  rules.kinds = {Kind::kOutput, Kind::kRouting};
  rules.ranks = {0, 7};
  Selection selection(rules);
  static_cast<void>(wants(selection, "s0/m0/output/fc/0"));
  EXPECT_THAT(selection.unused(),
              ElementsAre("--filter 'nosuch' matches no tensor id",
                          "--exclude 'neither' matches no tensor id",
                          "--steps 5:6 selects no tensor",
                          "--kinds names routing, but there is no tensor of this kind",
                          "--ranks names rank 7, which recorded no tensor"));
}

TEST(SelectionTest, BadRegularExpressionNamesItsOption) {
  try {
    const IdPattern pattern("--filter", "a(");
    FAIL() << "must throw";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.message(), HasSubstr("--filter is 'a('; it must be a regular expression"));
  }
}

}  // namespace
}  // namespace ttrace
