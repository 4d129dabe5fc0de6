#include "analysis/align/matching.h"

#include "analysis/trace_builder.h"
#include "support/temporary_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace ttrace {
namespace {

using ::testing::ElementsAre;
using testing::TemporaryDirectory;
using testing::TraceBuilder;

std::vector<std::string> ids(const std::vector<Match>& matches) {
  std::vector<std::string> texts;
  for (const Match& match : matches) {
    texts.push_back(to_string(match.id));
  }
  return texts;
}

class Matching : public ::testing::Test {
 protected:
  TemporaryDirectory directory_;
  TraceBuilder reference_{directory_ / "reference", "reference"};
  TraceBuilder candidate_{directory_ / "candidate", "candidate", 2, "dp"};
};

TEST_F(Matching, FollowsTheReferencesOrderNotTheCandidates) {
  for (const char* id : {"s0/m0/output/a/0", "s0/m0/output/b/0", "s0/m1/output/a/0"}) {
    reference_.add(0, {id, {1, 2}});
  }
  candidate_.add(1, {"s0/m1/output/a/0", {1, 2}});
  candidate_.add(0, {"s0/m0/output/b/0", {1, 2}});
  candidate_.add(0, {"s0/m0/output/a/0", {1, 2}});
  const Trace reference = reference_.write();
  const Trace candidate = candidate_.write();
  EXPECT_THAT(ids(match(reference, candidate)),
              ElementsAre("s0/m0/output/a/0", "s0/m0/output/b/0", "s0/m1/output/a/0"));
}

// Each stage of a pipeline counts its own records from 0.
TEST_F(Matching, OfAReferenceOfSeveralRanksClocksTellTheOrder) {
  TraceBuilder stages(directory_ / "stages", "reference", 2, "pp");
  stages.began(0, 1000).began(1, 1005);
  stages.add(0, {.id = "s0/m0/output/a/0", .values = {1, 2}, .time = 10});
  stages.add(0, {.id = "s0/m0/grad_output/a/0", .values = {1, 2}, .time = 40});
  stages.add(1, {.id = "s0/m0/output/b/0", .values = {1, 2}, .time = 15});
  stages.add(1, {.id = "s0/m0/grad_output/b/0", .values = {1, 2}, .time = 25});
  for (const char* id : {"s0/m0/output/a/0", "s0/m0/grad_output/b/0"}) {
    candidate_.add_everywhere({id, {1, 2}});
  }
  const Trace reference = stages.write();
  const Trace candidate = candidate_.write();
  EXPECT_THAT(ids(match(reference, candidate)),
              ElementsAre("s0/m0/output/a/0",
                          "s0/m0/output/b/0",
                          "s0/m0/grad_output/b/0",
                          "s0/m0/grad_output/a/0"));
}

TEST_F(Matching, PutsWhatOnlyTheCandidateHasBeforeTheNextMatchOfItsRank) {
  reference_.add(0, {"s0/m0/output/a/0", {1, 2}}).add(0, {"s0/m1/output/a/0", {1, 2}});
  // Rank 1 comes first in time and second in the reference's order.
  candidate_.add(1, {"s0/m1/output/extra1/0", {1}});
  candidate_.add(1, {"s0/m1/output/extra2/0", {1}});
  candidate_.add(1, {"s0/m1/output/a/0", {1, 2}});
  candidate_.add(1, {"s0/m1/output/last/0", {1}});
  candidate_.add(0, {"s0/m0/output/extra0/0", {1}});
  candidate_.add(0, {"s0/m0/output/a/0", {1, 2}});
  candidate_.add(0, {"s0/m0/output/last/0", {1}});
  const Trace reference = reference_.write();
  const Trace candidate = candidate_.write();
  const std::vector<Match> matches = match(reference, candidate);
  EXPECT_THAT(ids(matches),
              ElementsAre("s0/m0/output/extra0/0",
                          "s0/m0/output/a/0",
                          "s0/m1/output/extra1/0",
                          "s0/m1/output/extra2/0",
                          "s0/m1/output/a/0",
                          "s0/m0/output/last/0",  // nothing follows: ties go to the lower rank
                          "s0/m1/output/last/0"));
  EXPECT_EQ(matches[0].order, 0U);
  EXPECT_EQ(matches[2].order, 1U);
  EXPECT_EQ(matches[5].order, 2U);
}

TEST_F(Matching, TakesTheEarliestPlaceWhereSeveralRanksHoldAnUnmatchedTensor) {
  reference_.add(0, {"s0/m0/output/a/0", {1}}).add(0, {"s0/m0/output/b/0", {1}});
  candidate_.add(0, {"s0/m0/output/a/0", {1}});
  candidate_.add(0, {"s0/m0/output/extra/0", {1}});
  candidate_.add(0, {"s0/m0/output/b/0", {1}});
  candidate_.add(1, {"s0/m0/output/extra/0", {1}});
  candidate_.add(1, {"s0/m0/output/a/0", {1}});
  const Trace reference = reference_.write();
  const Trace candidate = candidate_.write();
  const std::vector<Match> matches = match(reference, candidate);
  EXPECT_THAT(ids(matches),
              ElementsAre("s0/m0/output/extra/0", "s0/m0/output/a/0", "s0/m0/output/b/0"));
  ASSERT_EQ(matches[0].candidate.size(), 2U);
  EXPECT_EQ(matches[0].candidate[0].rank, 0);
  EXPECT_EQ(matches[0].candidate[1].rank, 1);
  EXPECT_TRUE(matches[0].reference.empty());
}

TEST_F(Matching, StepsFollowOneAnother) {
  for (const char* id : {"s1/m0/output/a/0", "s0/m0/output/a/0", "s0/param_next/w/0"}) {
    reference_.add(0, {id, {1}});
    candidate_.add_everywhere({id, {1}});
  }
  const Trace reference = reference_.write();
  const Trace candidate = candidate_.write();
  EXPECT_THAT(ids(match(reference, candidate)),
              ElementsAre("s0/m0/output/a/0", "s0/param_next/w/0", "s1/m0/output/a/0"));
}

TEST_F(Matching, LinksARecomputedTensorToItsFirstForward) {
  reference_.add(0, {"s0/m0/output/a/0", {1}});
  candidate_.add_everywhere({"s0/m0/output/a/0", {1}});
  candidate_.add_everywhere({"s0/m0/output/a/0~", {1}});
  candidate_.add_everywhere({"s0/m0/output/b/0~", {1}});
  const Trace reference = reference_.write();
  const Trace candidate = candidate_.write();
  const std::vector<Match> matches = match(reference, candidate);
  ASSERT_EQ(matches.size(), 3U);
  EXPECT_EQ(matches[0].first_forward, std::nullopt);
  EXPECT_EQ(matches[1].first_forward, std::size_t{0});
  EXPECT_EQ(matches[2].first_forward, std::nullopt);
}

}  // namespace
}  // namespace ttrace
