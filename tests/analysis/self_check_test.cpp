// Checks that must hold within the candidate: messages and collectives.
#include "analysis/checks/self_check.h"

#include "analysis/diff.h"
#include "analysis/trace_builder.h"
#include "support/temporary_directory.h"

#include <ttrace/collective_call.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

namespace ttrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::kOutput;
using testing::TemporaryDirectory;
using testing::Tensor;
using testing::TraceBuilder;
using testing::wavy;

constexpr auto kSent = "s0/m0/sent/decoder.layers.0/0";
constexpr auto kReceived = "s0/m0/received/decoder.layers.0/0";
constexpr auto kIn = "s0/collective_input/tp-0.3/0";
constexpr auto kCall = "s0/collective_input/tp-0.3/1";
constexpr auto kOut = "s0/collective_output/tp-0.3/0";

class SelfChecks : public ::testing::Test {
 protected:
  SelfChecks() { reference_.add(0, {kOutput, wavy(4)}); }

  // One call of a rank; the output is left out where it has no values and no shape.
  void call(CollectiveCall call, const Tensor& input, const Tensor& output) {
    const int rank = call.rank;
    call.size = call.size == 1 ? 2 : call.size;
    call.module = "decoder.layers.0.mlp";
    const std::string text = to_text(call);
    Tensor in = input;
    in.id = kIn;
    candidate_.add(rank, in);
    candidate_.add(rank, {kCall, {text.begin(), text.end()}, ElementType::kU8});
    if (!output.values.empty()) {
      Tensor out = output;
      out.id = kOut;
      candidate_.add(rank, out);
    }
  }
  static Tensor of(std::vector<double> values, ElementType type = ElementType::kF32) {
    return {"", std::move(values), type};
  }

  Report run() {
    candidate_.add(0, {kOutput, wavy(4)}).add(1, {kOutput, wavy(4)});
    return diff(reference_.write(), candidate_.write());
  }
  // The only finding.
  TensorVerdict finding() {
    const Report report = run();
    EXPECT_EQ(report.counts().out_of_bound, 1U);
    return report.diverged() ? report.tensors[*report.first_divergence] : TensorVerdict();
  }
  void expect_clean(std::size_t tensors) {
    const Report report = run();
    EXPECT_FALSE(report.diverged()) << report.tensors.front().cause();
    EXPECT_EQ(report.tensors.size(), tensors);
    EXPECT_EQ(report.left_out, 0U);
  }

  TemporaryDirectory directory_;
  TraceBuilder reference_{directory_ / "reference", "reference"};
  TraceBuilder candidate_{directory_ / "candidate", "candidate", 2};
};

TEST_F(SelfChecks, WhatArrivesAsSentIsOneCleanTensor) {
  candidate_.add(0, {kSent, wavy(4)}).add(1, {kReceived, wavy(4)});
  expect_clean(2);
}

TEST_F(SelfChecks, ReceivedIsNotWhatWasSent) {
  candidate_.add(0, {kSent, wavy(4)}).add(1, {kReceived, wavy(4, 0.1)});
  const TensorVerdict tensor = finding();
  EXPECT_EQ(to_string(tensor.id), kReceived);
  EXPECT_EQ(tensor.symptom(), Symptom::kMessage);
  EXPECT_EQ(tensor.tier(), Tier::kT0);
  EXPECT_THAT(tensor.ranks(), ElementsAre(1));
  EXPECT_THAT(tensor.cause(),
              HasSubstr("4 of 4 elements that rank 1 received differ from what rank 0 sent"));
}

TEST_F(SelfChecks, MessagesThatNobodySentOrReceived) {
  candidate_.add(0, {kSent, wavy(4)});
  const TensorVerdict lost = finding();
  EXPECT_THAT(lost.cause(), HasSubstr("rank 0 sent it, but no rank received it"));
}

TEST_F(SelfChecks, AMessageWithoutSender) {
  candidate_.add(1, {kReceived, wavy(4)});
  EXPECT_THAT(finding().cause(), HasSubstr("rank 1 received it, but no rank sent it"));
}

TEST_F(SelfChecks, SumInAnyOrderIsRight) {
  // BF16 keeps 8 bits: 1 + 1/256 is rounded to 1, an error within one rounding.
  call({.rank = 0}, of({1.0, 2.0}, ElementType::kBF16), of({1.0, 4.0}, ElementType::kBF16));
  call({.rank = 1}, of({1.0 / 256, 2.0}, ElementType::kBF16), of({1.0, 4.0}, ElementType::kBF16));
  expect_clean(2);
}

TEST_F(SelfChecks, SumThatIsNone) {
  call({.rank = 0}, of({1.0, 2.0}), of({3.0, 5.0}));
  call({.rank = 1}, of({2.0, 3.0}), of({3.0, 5.5}));
  const TensorVerdict tensor = finding();
  EXPECT_EQ(to_string(tensor.id), kOut);
  EXPECT_EQ(tensor.symptom(), Symptom::kCollective);
  EXPECT_THAT(tensor.ranks(), ElementsAre(1));
  EXPECT_THAT(tensor.cause(),
              HasSubstr("all-reduce (sum) number 3 of group tp-0 in decoder.layers.0.mlp"));
  EXPECT_THAT(tensor.cause(), HasSubstr("1 of 2 elements on rank 1"));
  EXPECT_THAT(tensor.cause(), HasSubstr("the first, at [1], is 5.5 instead of 5"));
}

TEST_F(SelfChecks, Average) {
  call({.reduction = CollectiveReduction::kAverage, .rank = 0}, of({1.0, 3.0}), of({2.0, 3.0}));
  call({.reduction = CollectiveReduction::kAverage, .rank = 1}, of({3.0, 3.0}), of({2.0, 3.0}));
  expect_clean(2);
}

TEST_F(SelfChecks, AMaximumIsExact) {
  const double next = std::nextafter(1.0F, 2.0F);
  call({.reduction = CollectiveReduction::kMax, .rank = 0}, of({1.0}), of({next}));
  call({.reduction = CollectiveReduction::kMax, .rank = 1}, of({0.5}), of({1.0}));
  EXPECT_THAT(finding().ranks(), ElementsAre(0));
}

TEST_F(SelfChecks, ReduceScatterGivesEveryRankItsPart) {
  const auto operation = CollectiveOperation::kReduceScatter;
  call({.operation = operation, .rank = 0}, of({1.0, 2.0}), {"", {4.0}, ElementType::kF32, {1}});
  call({.operation = operation, .rank = 1}, of({3.0, 4.0}), {"", {6.0}, ElementType::kF32, {1}});
  expect_clean(2);
}

TEST_F(SelfChecks, AllGatherInTheWrongOrder) {
  const auto operation = CollectiveOperation::kAllGather;
  call({.operation = operation, .rank = 0}, of({1.0, 2.0}), of({1.0, 2.0, 3.0, 4.0}));
  call({.operation = operation, .rank = 1}, of({3.0, 4.0}), of({3.0, 4.0, 1.0, 2.0}));
  const TensorVerdict tensor = finding();
  EXPECT_THAT(tensor.ranks(), ElementsAre(1));
  EXPECT_THAT(tensor.cause(), HasSubstr("all-gather number 3 of group tp-0"));
}

TEST_F(SelfChecks, AllToAllOfUnevenParts) {
  const auto operation = CollectiveOperation::kAllToAll;
  call({.operation = operation, .rank = 0, .rows_sent = {1, 2}, .rows_received = {1, 1}},
       {"", {0, 1, 2, 3, 4, 5}, ElementType::kF32, {3, 2}},
       {"", {0, 1, 6, 7}, ElementType::kF32, {2, 2}});
  call({.operation = operation, .rank = 1, .rows_sent = {1, 0}, .rows_received = {2, 0}},
       {"", {6, 7}, ElementType::kF32, {1, 2}},
       {"", {2, 3, 4, 5}, ElementType::kF32, {2, 2}});
  expect_clean(2);
}

TEST_F(SelfChecks, AllToAllThatBringsRowsOfTheWrongPart) {
  const auto operation = CollectiveOperation::kAllToAll;
  call({.operation = operation, .rank = 0, .rows_sent = {1, 2}, .rows_received = {1, 1}},
       {"", {0, 1, 2, 3, 4, 5}, ElementType::kF32, {3, 2}},
       {"", {0, 1, 6, 7}, ElementType::kF32, {2, 2}});
  call({.operation = operation, .rank = 1, .rows_sent = {1, 0}, .rows_received = {2, 0}},
       {"", {6, 7}, ElementType::kF32, {1, 2}},
       {"", {0, 1, 2, 3}, ElementType::kF32, {2, 2}});
  const TensorVerdict tensor = finding();
  EXPECT_THAT(tensor.ranks(), ElementsAre(1));
  EXPECT_THAT(tensor.cause(), HasSubstr("all-to-all number 3 of group tp-0"));
  EXPECT_THAT(tensor.cause(), HasSubstr("the first, at [0, 0], is 0 instead of 2"));
}

// The sizes of all outputs are right nevertheless.
TEST_F(SelfChecks, AllToAllWhoseRanksTakeDifferentSplitSizesForAgreed) {
  const auto operation = CollectiveOperation::kAllToAll;
  call({.operation = operation, .rank = 0, .rows_sent = {1, 2}, .rows_received = {1, 1}},
       of({0, 1, 2}),
       of({0, 3}));
  call({.operation = operation, .rank = 1, .rows_sent = {1, 1}, .rows_received = {1, 2}},
       of({3, 4}),
       of({1, 2, 4}));
  const TensorVerdict tensor = finding();
  EXPECT_THAT(tensor.ranks(), ElementsAre(0, 1));
  EXPECT_THAT(
      tensor.cause(),
      HasSubstr(
          "the split sizes do not fit together: rank 1 expects 1 row from rank 0, which sends 2"));
}

TEST_F(SelfChecks, AllToAllOfARankWithoutRows) {
  const auto operation = CollectiveOperation::kAllToAll;
  call({.operation = operation, .rank = 0, .rows_sent = {0, 0}, .rows_received = {0, 1}},
       {"", {}, ElementType::kF32, {0, 2}},
       {"", {4, 5}, ElementType::kF32, {1, 2}});
  call({.operation = operation, .rank = 1, .rows_sent = {1, 1}, .rows_received = {0, 1}},
       {"", {4, 5, 6, 7}, ElementType::kF32, {2, 2}},
       {"", {6, 7}, ElementType::kF32, {1, 2}});
  expect_clean(2);
}

TEST_F(SelfChecks, BroadcastOfTheRoot) {
  const auto operation = CollectiveOperation::kBroadcast;
  call({.operation = operation, .rank = 0, .root = 1}, of({1.0, 2.0}), of({1.0, 2.0}));
  call({.operation = operation, .rank = 1, .root = 1}, of({3.0, 4.0}), of({3.0, 4.0}));
  EXPECT_THAT(finding().ranks(), ElementsAre(0));
}

TEST_F(SelfChecks, RanksThatCallDifferentThings) {
  call({.rank = 0}, of({1.0, 2.0}), of({1.0, 2.0}));
  call({.operation = CollectiveOperation::kBroadcast, .rank = 1}, of({1.0, 2.0}), of({1.0, 2.0}));
  EXPECT_THAT(
      finding().cause(),
      HasSubstr("rank 0 calls all-reduce (sum) among 2 ranks, but rank 1 calls broadcast among 2"));
}

TEST_F(SelfChecks, ACallThatARankLeavesOut) {
  call({.rank = 0}, of({1.0, 2.0}), of({1.0, 2.0}));
  EXPECT_THAT(finding().cause(),
              HasSubstr("only rank 0 made this call, but the group has 2 ranks"));
}

TEST_F(SelfChecks, InputsOfDifferentShapes) {
  call({.rank = 0}, of({1.0, 2.0}), of({2.0, 4.0}));
  call({.rank = 1}, {"", {1.0}, ElementType::kF32, {1}}, of({2.0, 4.0}));
  EXPECT_THAT(finding().cause(),
              HasSubstr("inputs do not fit together: f32 2 on rank 0, f32 1 on rank 1"));
}

TEST_F(SelfChecks, ACallThatNeverEndedOnARank) {
  call({.rank = 0}, of({1.0, 2.0}), of({2.0, 4.0}));
  call({.rank = 1}, of({1.0, 2.0}), of({}));
  EXPECT_THAT(finding().cause(), HasSubstr("never finished on rank 1"));
}

// A parameter all-gather that overlaps the next iteration ends when the step is over.
TEST_F(SelfChecks, ACallThatEndedNowhereIsNotJudged) {
  call({.rank = 0}, of({1.0, 2.0}), of({}));
  call({.rank = 1}, of({1.0, 2.0}), of({}));
  expect_clean(1);
}

TEST(CollectiveCalls, TextRoundTrips) {
  CollectiveCall call{.operation = CollectiveOperation::kAllToAll,
                      .reduction = CollectiveReduction::kMax,
                      .rank = 1,
                      .size = 4,
                      .root = 2,
                      .rows_sent = {1, 0, 3, 2},
                      .rows_received = {0, 0, 1, 1},
                      .module = "decoder.layers.1"};
  EXPECT_EQ(parse_collective_call(to_text(call)), call);
  EXPECT_THROW((void)parse_collective_call("{\"operation\":\"all_do\"}"), std::exception);
}

}  // namespace
}  // namespace ttrace
