// Mixture of experts in megatron_mini as a user starts it: every division of the experts computes
// what one rank computes.
#include "mini_program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace {

using megatron_mini::testing::expect_the_single_ranks_steps;
using megatron_mini::testing::kBadInput;
using megatron_mini::testing::MiniProgram;
using megatron_mini::testing::RankLayout;
using megatron_mini::testing::steps_of;
using ::testing::HasSubstr;

const std::vector<RankLayout> kExpertLayouts = {
    {"tp2", 2, "--tp 2"},
    {"tp2_sp", 2, "--tp 2 --sp"},
    {"tp2_sp_etp1", 2, "--tp 2 --sp --etp 1"},
    {"tp2_sp_ep2_etp1", 2, "--tp 2 --sp --ep 2 --etp 1"},
    {"dp2_ep2", 2, "--dp 2 --ep 2"},
    {"dp2_etp2", 2, "--dp 2 --etp 2"},
    {"cp2_ep2", 2, "--cp 2 --ep 2"},
    {"dp4_ep4", 4, "--dp 4 --ep 4"},
    {"tp2_dp2_ep2", 4, "--tp 2 --dp 2 --ep 2"},
    {"tp2_sp_dp2_ep2", 4, "--tp 2 --sp --dp 2 --ep 2"},
    {"dp2_cp2_ep2_etp2", 4, "--dp 2 --cp 2 --ep 2 --etp 2"}};

TEST(Experts, ThreeF64StepsOfEveryLayoutEqualTheSingleRanks) {
  const MiniProgram program({{"model.experts", "4"},
                             {"model.top_k", "2"},
                             {"model.shared_expert", "64"},
                             {"model.aux_loss", "0.01"},
                             {"model.z_loss", "0.001"},
                             {"model.expert_bias", "0.1"},
                             {"data.masked", "prompt"},
                             {"loss", "per_token"}});
  expect_the_single_ranks_steps(program, kExpertLayouts, 3);
}

TEST(MegatronMini, RouterLossesAndBiasesChangeTheStepsThatFollow) {
  const auto last = [](const MiniProgram& program) {
    return steps_of(program, 1, "--precision f64 --steps 2").at(1).loss;
  };
  const double plain = last(MiniProgram({{"model.experts", "4"}, {"model.top_k", "2"}}));
  for (const auto& key : {"model.aux_loss", "model.z_loss", "model.expert_bias"}) {
    EXPECT_NE(last(MiniProgram({{"model.experts", "4"}, {"model.top_k", "2"}, {key, "0.1"}})),
              plain)
        << key;
  }
}

TEST(MegatronMini, ExpertsThatCannotBeDividedSoAreRefusedWithBothNumbers) {
  const auto refusal = [](const MiniProgram& program, int ranks, const std::string& arguments) {
    const auto result = program.run(ranks, arguments);
    EXPECT_EQ(result.exit_code, kBadInput);
    return result.err;
  };
  const MiniProgram three({{"model.experts", "3"}});
  EXPECT_THAT(refusal(three, 2, "--dp 2 --ep 2"),
              HasSubstr("--ep 2 does not divide model.experts 3"));
  EXPECT_THAT(refusal(three, 2, "--tp 2 --etp 1"), HasSubstr("--etp 1 other than --tp 2"));
  EXPECT_THAT(refusal(three, 2, "--dp 2 --ep 2 --etp 2"),
              HasSubstr("--etp 2 times --ep 2 must divide --tp times --cp times --dp, which is 2"));
  const MiniProgram odd({{"model.experts", "2"}, {"model.ffn", "33"}});
  EXPECT_THAT(refusal(odd, 2, "--dp 2 --etp 2"), HasSubstr("--etp 2 does not divide ffn 33"));
  const MiniProgram greedy({{"model.experts", "2"}, {"model.top_k", "3"}});
  EXPECT_THAT(refusal(greedy, 1, ""), HasSubstr("top_k 3 must not be above experts 2"));
  const MiniProgram dense({{"model.aux_loss", "0.1"}});
  EXPECT_THAT(refusal(dense, 1, ""), HasSubstr("need experts of at least 2, not 1"));
}

}  // namespace
