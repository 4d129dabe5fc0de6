// What training keeps from step to step: masters and what is cast from them, states and buffers of
// one side alone, start values of ranks.
#include "analysis/diff.h"
#include "analysis/golden_wording.h"
#include "analysis/trace_builder.h"
#include "support/temporary_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace ttrace {
namespace {

using ::testing::HasSubstr;
using testing::kOutput;
using testing::part;
using testing::TemporaryDirectory;
using testing::TraceBuilder;
using testing::wavy;

constexpr auto kParameter = "s0/param/a.weight/0";
constexpr auto kStart = "s0/start/a.weight/0";
constexpr auto kMaster = "s0/master/a.weight/0";
constexpr auto kNext = "s0/param_next/a.weight/0";
constexpr auto kBF16 = ElementType::kBF16;

class KeptState : public ::testing::Test {
 protected:
  KeptState() {
    reference_.add(0, {kOutput, wavy(4)});
    candidate_.add_everywhere({kOutput, wavy(4)});
  }

  Report run() { return diff(reference_.write(), candidate_.write()); }

  // Masters lie in two halves; `rank_1` is what that rank holds of the whole parameter.
  Report run_with_masters(const std::vector<double>& next, const std::vector<double>& rank_1) {
    reference_.manifest.precision = candidate_.manifest.precision = "bf16";
    const std::vector<double> master = wavy(64);
    reference_.add(0, {kMaster, master}).add(0, {kNext, next, kBF16});
    for (int rank = 0; rank < 2; ++rank) {
      const auto begin = master.begin() + 32L * rank;
      candidate_.add(rank,
                     {kMaster, {begin, begin + 32}, ElementType::kF32, {}, part(64, rank, 2)});
      candidate_.add(rank, {kNext, rank_1, kBF16});
    }
    return run();
  }

  TemporaryDirectory directory_;
  TraceBuilder reference_{directory_ / "reference", "reference"};
  TraceBuilder candidate_{directory_ / "candidate", "candidate", 2, "dp"};
};

// Symptom: one element at the border of a shard that was not written back got "within bound".
TEST_F(KeptState, AParameterIsItsMasterInEveryElement) {
  std::vector<double> stale = wavy(64);
  stale[32] *= 1.02;  // 8 units in the last place of BF16 have 3 % of this element
  const Report report = run_with_masters(wavy(64), stale);
  ASSERT_TRUE(report.diverged());
  const TensorVerdict& tensor = report.tensors[*report.first_divergence];
  EXPECT_EQ(to_string(tensor.id), kNext);
  EXPECT_EQ(tensor.symptom(), Symptom::kCast);
  EXPECT_THAT(tensor.cause(), HasSubstr("1 of 64 elements are not the master rounded to bf16"));
  EXPECT_THAT(tensor.cause(), HasSubstr("[32]"));
}

TEST_F(KeptState, AParameterThatIsItsMasterIsClean) {
  EXPECT_FALSE(run_with_masters(wavy(64), wavy(64)).diverged());
}

// An optimizer that rounds in a way of its own does so on both sides.
TEST_F(KeptState, NothingIsAskedWhereTheReferenceRoundsOtherwise) {
  std::vector<double> up = wavy(64);
  up[7] *= 1.01;
  std::vector<double> elsewhere = wavy(64);
  elsewhere[9] *= 1.01;
  EXPECT_FALSE(run_with_masters(up, elsewhere).diverged());
}

// Symptom: an optimizer that counts steps per parameter, next to one that counts them once,
// alarmed.
TEST_F(KeptState, AStateThatOneOptimizerDoesNotHaveAtAllIsNoFinding) {
  reference_.add(0, {"s0/state/a.weight.step/0", {1.0}})
      .add(0, {"s0/state/b.weight.step/0", {1.0}})
      .add(0, {"s0/buffer/table/0", wavy(4)});
  candidate_.add_everywhere({"s0/buffer/mask/0", wavy(4)});
  const Report report = run();
  EXPECT_FALSE(report.diverged());
  ASSERT_EQ(report.not_seen.size(), 3U);
  for (const UnseenPart& unseen : report.not_seen) {
    EXPECT_EQ(unseen.kind, NotSeenKind::kState);
  }
  EXPECT_WORDING(report.not_seen.front().sentence);
}

// Symptom: masters of DeepSpeed's BF16 optimizer were "missing in the reference", a plain loop in
// BF16.
TEST_F(KeptState, MastersMayBeTheCandidatesAloneButNotTheReferences) {
  candidate_.add_everywhere({"s0/master/a.weight/0", wavy(4)});
  const Report more = run();
  EXPECT_FALSE(more.diverged());
  ASSERT_EQ(more.not_seen.size(), 1U);
  EXPECT_WORDING(more.not_seen.front().sentence);
}

TEST_F(KeptState, MastersThatTheCandidateLacksAreAFinding) {
  reference_.add(0, {"s0/master/a.weight/0", wavy(4)});
  EXPECT_TRUE(run().diverged());
}

TEST_F(KeptState, AMasterThatOneParameterOfTheReferenceLacksIsAFinding) {
  reference_.add(0, {"s0/master/a.weight/0", wavy(4)});
  candidate_.add_everywhere({"s0/master/a.weight/0", wavy(4)})
      .add_everywhere({"s0/master/b.weight/0", wavy(4)});
  EXPECT_TRUE(run().diverged());
}

TEST_F(KeptState, AStateThatOneParameterLacksIsAFinding) {
  reference_.add(0, {"s0/state/a.weight.step/0", {1.0}})
      .add(0, {"s0/state/b.weight.step/0", {1.0}});
  candidate_.add_everywhere({"s0/state/a.weight.step/0", {1.0}});
  const Report report = run();
  ASSERT_TRUE(report.diverged());
  EXPECT_EQ(to_string(report.tensors[*report.first_divergence].id), "s0/state/b.weight.step/0");
}

// Symptom: a checkpoint that lost the optimizer's state was seen at the moments after the step
// only.
TEST_F(KeptState, AStateThatACheckpointLostIsAFinding) {
  const auto momentum = [](const std::string& kind) {
    return "s2/" + kind + "/a.weight.momentum_buffer/0";
  };
  reference_.add(0, {"s2/state_before/a.weight.exp_avg/0", wavy(8)})
      .add(0, {momentum("state_before"), wavy(8)})
      .add(0, {"s2/exp_avg/a.weight/0", wavy(8)})
      .add(0, {momentum("state"), wavy(8)});
  candidate_.add_everywhere({"s2/exp_avg/a.weight/0", wavy(8)})
      .add_everywhere({momentum("state"), wavy(8)});
  const Report report = run();
  ASSERT_TRUE(report.diverged());
  EXPECT_EQ(to_string(report.tensors[*report.first_divergence].id),
            "s2/state_before/a.weight.exp_avg/0");
  EXPECT_EQ(std::ranges::count_if(report.tensors, &TensorVerdict::is_finding), 2);
}

// The other side of that line: an optimizer that keeps no such state at all has lost none.
TEST_F(KeptState, AStateThatOneOptimizerNeverHasIsNotLost) {
  reference_.add(0, {"s2/state_before/a.weight.step/0", {2.0}})
      .add(0, {"s2/state/a.weight.step/0", {3.0}})
      .add(0, {"s2/state_before/bn.running_mean/0", wavy(4)})
      .add(0, {"s2/buffer/bn.running_mean/0", wavy(4)})
      .add(0, {"s2/param/a.weight/0", wavy(4)});
  candidate_.add_everywhere({"s2/param/a.weight/0", wavy(4)});
  const Report report = run();
  EXPECT_FALSE(report.diverged());
  EXPECT_EQ(report.not_seen.size(), 2U);
}

TEST_F(KeptState, AStateThatRanksFindDifferentIsAFinding) {
  reference_.add(0, {"s2/state_before/a.weight.exp_avg/0", wavy(8)});
  candidate_.add(0, {"s2/state_before/a.weight.exp_avg/0", wavy(8)})
      .add(1, {"s2/state_before/a.weight.exp_avg/0", wavy(8, 1.0)});
  const Report report = run();
  ASSERT_TRUE(report.diverged());
  EXPECT_EQ(report.tensors[*report.first_divergence].symptom(), Symptom::kReplicasDisagree);
}

TEST_F(KeptState, ALearningRateIsNamed) {
  reference_.add(0, {"s0/state/a.weight.lr/0", {0.1}, ElementType::kF64});
  candidate_.add_everywhere({"s0/state/a.weight.lr/0", {0.05}, ElementType::kF64});
  const Report report = run();
  ASSERT_TRUE(report.diverged());
  const std::vector<Root> roots = report.roots();
  ASSERT_EQ(roots.size(), 1U);
  ASSERT_TRUE(roots.front().diagnosis.has_value());
  EXPECT_EQ(roots.front().diagnosis->signature, Signature::kOptimizer);
  EXPECT_WORDING(roots.front().diagnosis.value().sentence);
}

// Symptom: ranks that drew their own start values got "within bound": the reference's replaced
// them.
TEST_F(KeptState, RanksBeginWithTheSameValues) {
  reference_.add(0, {kParameter, wavy(8)});
  candidate_.add_everywhere({kParameter, wavy(8)}).add(1, {kStart, wavy(8, 1.0)});
  const Report report = run();
  ASSERT_TRUE(report.diverged());
  const TensorVerdict& tensor = report.tensors[*report.first_divergence];
  EXPECT_EQ(to_string(tensor.id), kStart);
  EXPECT_EQ(tensor.symptom(), Symptom::kReplicasDisagree);
  EXPECT_THAT(tensor.cause(), HasSubstr("ranks 0, 1 begin with different values of a.weight"));
}

TEST_F(KeptState, RanksMayBeginWithOtherValuesThanTheReference) {
  reference_.add(0, {kParameter, wavy(8)});
  candidate_.add_everywhere({kParameter, wavy(8)}).add_everywhere({kStart, wavy(8, 1.0)});
  EXPECT_FALSE(run().diverged());
}

TEST_F(KeptState, PartsOfAParameterMayBeginWithDifferentValues) {
  reference_.add(0, {kParameter, wavy(8)});
  const std::vector<double> all = wavy(8);
  for (int rank = 0; rank < 2; ++rank) {
    const auto begin = all.begin() + 4L * rank;
    candidate_.add(rank, {kParameter, {begin, begin + 4}, ElementType::kF32, {}, part(8, rank, 2)});
  }
  candidate_.add(1, {kStart, wavy(4, 1.0), ElementType::kF32, {}, part(8, 1, 2)});
  EXPECT_FALSE(run().diverged());
}

}  // namespace
}  // namespace ttrace
