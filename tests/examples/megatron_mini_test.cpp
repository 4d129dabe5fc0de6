// megatron_mini as a user starts it: real ranks, exit codes and what it prints.
#include "mini_program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <cstdlib>
#include <ostream>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

namespace {

using megatron_mini::testing::expect_equal;
using megatron_mini::testing::expect_the_single_ranks_steps;
using megatron_mini::testing::kBadInput;
using megatron_mini::testing::MiniProgram;
using megatron_mini::testing::RankLayout;
using megatron_mini::testing::run_ranks;
using megatron_mini::testing::steps_of;
using ::testing::HasSubstr;
using ::testing::SizeIs;

const std::vector<RankLayout> kLayouts = {
    {"tp2", 2, "--tp 2"},
    {"tp2_sp_dp2", 4, "--tp 2 --sp --dp 2"},
    {"tp4_sp", 4, "--tp 4 --sp"},
    {"cp4", 4, "--cp 4"},
    {"tp2_sp_cp2", 4, "--tp 2 --sp --cp 2"},
    {"tp2_sp_dp2_overlap", 4, "--tp 2 --sp --dp 2 --zero1 --overlap-gather"},
    {"tp2_sp_pp2", 4, "--tp 2 --sp --pp 2"},
    {"cp2_pp2", 4, "--cp 2 --pp 2"},
    {"dp2_pp2_zero1", 4, "--dp 2 --pp 2 --zero1 --overlap-gather"}};

// Several axes each, for what the others need not repeat.
const std::vector<RankLayout> kCombinedLayouts = {
    kLayouts[1], kLayouts[4], kLayouts[5], kLayouts[6]};

TEST(Layouts, TwoF64StepsEqualTheSingleRanks) {
  const MiniProgram program;
  const auto single = steps_of(program, 1, "--precision f64 --steps 2");
  EXPECT_NE(single.at(0).loss, single.at(1).loss);
  expect_the_single_ranks_steps(program, kLayouts, 2);
}

TEST(CombinedLayouts, TiedGeluModelWithOneQueryPerKeyEqualsTheSingleRanks) {
  expect_the_single_ranks_steps(
      MiniProgram(
          {{"model.tied", "true"}, {"model.activation", "gelu"}, {"model.query_groups", "8"}}),
      kCombinedLayouts,
      2);
}

TEST(CombinedLayouts, MaskedLossPerTokenEqualsTheSingleRanks) {
  expect_the_single_ranks_steps(
      MiniProgram({{"data.masked", "prompt"}, {"loss", "per_token"}}), kCombinedLayouts, 2);
}

TEST(CombinedLayouts, PackedDocumentsEqualTheSingleRanks) {
  expect_the_single_ranks_steps(
      MiniProgram(
          {{"data.documents", "packed"}, {"data.masked", "prompt"}, {"model.query_groups", "8"}}),
      kCombinedLayouts,
      2);
}

TEST(CombinedLayouts, MaskedMeanEqualsTheSingleRanks) {
  expect_the_single_ranks_steps(MiniProgram({{"data.masked", "prompt"}}), kCombinedLayouts, 1);
}

TEST(CombinedLayouts, Bf16RunsRepeatBitByBitAndLieNearTheSingleRanks) {
  const MiniProgram program;
  const auto single = steps_of(program, 1, "--steps 2");
  ASSERT_THAT(single, SizeIs(2));
  for (const auto& layout : kCombinedLayouts) {
    SCOPED_TRACE(layout.name);
    const std::string arguments = "--steps 2 --digest " + layout.flags;
    const auto first = steps_of(program, layout.ranks, arguments);
    const auto second = steps_of(program, layout.ranks, arguments);
    expect_equal(first, single, 2e-3);
    ASSERT_EQ(first.size(), second.size());
    for (std::size_t i = 0; i < first.size(); ++i) {
      EXPECT_THAT(first[i].digest, SizeIs(16));
      EXPECT_EQ(first[i].digest, second[i].digest);
    }
  }
}

// A model that is deep enough for virtual stages and for stages of different depths.
TEST(DeepLayouts, TiedModelEqualsTheSingleRanks) {
  expect_the_single_ranks_steps(
      MiniProgram({{"model.layers", "6"}, {"model.tied", "true"}}),
      {{"pp2_vpp3", 2, "--pp 2 --vpp 3"},
       {"pp2_vpp2_uneven", 2, "--pp 2 --vpp 2 --last-stage-layers 2"},
       {"pp4_uneven", 4, "--pp 4 --first-stage-layers 1 --last-stage-layers 1"},
       {"tp2_sp_pp2_vpp3", 4, "--tp 2 --sp --pp 2 --vpp 3"},
       {"dp2_pp2_vpp3", 4, "--dp 2 --pp 2 --vpp 3"}},
      2);
}

TEST(MegatronMini, PrecisionsAgreeWithinTheirRounding) {
  const MiniProgram program;
  const auto f64 = steps_of(program, 1, "--precision f64");
  expect_equal(steps_of(program, 1, "--precision f32"), f64, 1e-6);
  expect_equal(steps_of(program, 1, "--precision bf16"), f64, 2e-3);
}

TEST(MegatronMini, MaskAndAveragingChangeLossAndGradient) {
  const auto step = [](const MiniProgram& program) {
    return steps_of(program, 1, "--precision f64").at(0);
  };
  const auto plain = step(MiniProgram());
  const auto masked = step(MiniProgram({{"data.masked", "prompt"}}));
  const auto per_token = step(MiniProgram({{"data.masked", "prompt"}, {"loss", "per_token"}}));
  EXPECT_GT(std::abs(masked.loss - plain.loss), 1e-4);
  EXPECT_GT(std::abs(per_token.loss - masked.loss), 1e-4);
  EXPECT_GT(std::abs(per_token.grad_norm - masked.grad_norm), 1e-4);
}

TEST(MegatronMini, SeedAndMicroBatchesOfTheCommandLineReplaceTheConfigurations) {
  const MiniProgram program;
  const MiniProgram other({{"data.seed", "5"}, {"data.micro_batches", "2"}});
  const auto replaced = steps_of(program, 1, "--seed 5 --micro-batches 2 --digest");
  const auto configured = steps_of(other, 1, "--digest");
  ASSERT_THAT(replaced, SizeIs(1));
  ASSERT_THAT(configured, SizeIs(1));
  EXPECT_EQ(replaced[0].digest, configured[0].digest);
  EXPECT_NE(replaced[0].digest, steps_of(program, 1, "--digest").at(0).digest);
}

TEST(MegatronMini, WrongDivisorScalesTheGradientByTheNumberOfRanks) {
  const MiniProgram program;
  const auto right = steps_of(program, 2, "--precision f64 --dp 2");
  const auto wrong = steps_of(program, 2, "--precision f64 --dp 2 --bug dp-divisor");
  ASSERT_THAT(wrong, SizeIs(1));
  EXPECT_NEAR(wrong[0].grad_norm, 2.0 * right.at(0).grad_norm, 1e-12);
  EXPECT_EQ(wrong[0].loss, right[0].loss);
}

TEST(MegatronMini, StaleParameterIsNoticedByTheNextStepOnly) {
  const MiniProgram program;
  const auto right = steps_of(program, 1, "--steps 2");
  const auto wrong = steps_of(program, 1, "--steps 2 --bug stale-parameter");
  ASSERT_THAT(right, SizeIs(2));
  ASSERT_THAT(wrong, SizeIs(2));
  EXPECT_EQ(wrong[0].loss, right[0].loss);
  EXPECT_EQ(wrong[0].grad_norm, right[0].grad_norm);
  EXPECT_NE(wrong[1].loss, right[1].loss);
}

// Without the distributed optimizer, nothing would be gathered or dropped, whatever the options
// say.
TEST(MegatronMini, DroppedGatherIsNoticedByTheNextStepOnly) {
  const MiniProgram program;
  const std::string arguments = "--dp 2 --zero1 --overlap-gather --steps 2";
  const auto right = steps_of(program, 2, arguments);
  const auto wrong = steps_of(program, 2, arguments + " --bug gathered-parameters-dropped");
  ASSERT_THAT(right, SizeIs(2));
  ASSERT_THAT(wrong, SizeIs(2));
  EXPECT_EQ(wrong[0].loss, right[0].loss);
  EXPECT_NE(wrong[1].loss, right[1].loss);
}

TEST(MegatronMini, LocalNormLeavesTheOtherRanksGradientsOut) {
  const MiniProgram program;
  const auto right = steps_of(program, 4, "--precision f64 --tp 4 --sp");
  const auto wrong = steps_of(program, 4, "--precision f64 --tp 4 --sp --bug local-clip-norm");
  ASSERT_THAT(right, SizeIs(1));
  ASSERT_THAT(wrong, SizeIs(1));
  EXPECT_EQ(wrong[0].loss, right[0].loss);
  // Rank 0, which prints, has most of it: the output layer's rows of nearly all tokens.
  EXPECT_GT(wrong[0].grad_norm, 0.5 * right[0].grad_norm);
  EXPECT_LT(wrong[0].grad_norm, 0.95 * right[0].grad_norm);
}

TEST(MegatronMini, ListOfBugsIsOneLineOfJsonEach) {
  const auto result = run_ranks(1, {MEGATRON_MINI_PROGRAM, "--list-bugs"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  std::vector<std::string> names;
  std::istringstream lines(result.out);
  for (std::string line; std::getline(lines, line);) {
    const auto bug = nlohmann::json::parse(line);
    names.push_back(bug.at("name"));
    EXPECT_FALSE(bug.at("source").get<std::string>().empty());
    EXPECT_FALSE(bug.at("needs").get<std::string>().empty());
    EXPECT_NO_THROW(std::regex(bug.at("expected").get<std::string>()));
    EXPECT_FALSE(bug.at("hint").get<std::string>().empty());
    EXPECT_NO_THROW(std::regex(bug.at("hint").get<std::string>()));
  }
  EXPECT_THAT(names,
              ::testing::IsSupersetOf({"tp-forward-allreduce", "dp-divisor", "gather-order"}));
}

struct BadInput {
  std::string name;
  int ranks;
  std::string arguments;
  std::string says;
};

std::ostream& operator<<(std::ostream& out, const BadInput& input) {
  return out << input.arguments;
}

class BadInputs : public ::testing::TestWithParam<BadInput> {};

TEST_P(BadInputs, IsOneSentenceAndExitCodeTwo) {
  const MiniProgram program({{"model.query_groups", "2"}});
  const auto result = program.run(GetParam().ranks, GetParam().arguments);
  EXPECT_EQ(result.exit_code, kBadInput);
  EXPECT_FALSE(result.timed_out);
  EXPECT_THAT(result.err, HasSubstr(GetParam().says));
  EXPECT_EQ(result.out, "");
  // One rank speaks: the program's name occurs once.
  const auto first = result.err.find("megatron_mini: ");
  ASSERT_NE(first, std::string::npos);
  EXPECT_EQ(result.err.find("megatron_mini: ", first + 1), std::string::npos) << result.err;
}

const BadInput kBadInputs[] = {
    {"unknown_bug", 1, "--bug nonsense", "bug `nonsense` is not declared"},
    {"unknown_bug_on_ranks", 2, "--tp 2 --bug nonsense", "bug `nonsense` is not declared"},
    {"bug_without_its_layout", 1, "--bug sp-norm-grad", "it needs tp >= 2 and sp"},
    {"bug_without_data_parallelism", 2, "--tp 2 --bug dp-divisor", "it needs dp >= 2"},
    {"embedding_mask_on_one_rank", 1, "--bug embedding-mask", "it needs tp >= 2"},
    {"repeated_bias_without_tp",
     2,
     "--dp 2 --bug repeated-bias",
     "it needs tp >= 2 and layers >= 2"},
    {"double_reduction_without_tp",
     1,
     "--bug double-reduction",
     "it needs tp >= 2 and layers >= 2"},
    {"only_one_micro_batch",
     1,
     "--micro-batches 1 --bug dropped-microbatch",
     "it needs micro_batches >= 2"},
    {"no_low_precision_copies",
     1,
     "--precision f32 --bug stale-parameter",
     "it needs precision == bf16 and layers >= 2"},
    {"local_norm_without_tp", 2, "--dp 2 --bug local-clip-norm", "it needs tp >= 2"},
    {"gather_order_without_sp", 2, "--tp 2 --bug gather-order", "it needs tp >= 2 and sp"},
    {"bug_without_a_size", 2, "--tp 2 --bug repeated-bias --bug-size 2", "has no magnitude"},
    {"size_without_a_bug", 1, "--bug-size 2", "--bug-size needs --bug NAME"},
    {"unknown_option", 1, "--nonsense", "nonsense"},
    {"ranks_do_not_fit", 2, "--tp 2 --dp 2", "must equal the number of ranks, which is 2"},
    {"tp_does_not_divide_ranks", 1, "--tp 2", "--tp 2 must divide the number of ranks"},
    {"cp_does_not_divide_ranks",
     4,
     "--tp 2 --cp 3",
     "--cp 3 must divide the number of ranks that are left to it, which is 2"},
    {"pp_does_not_divide_ranks", 4, "--tp 2 --pp 4", "--pp 4 must divide the number of ranks that"},
    {"virtual_stages_alone", 2, "--dp 2 --vpp 2", "--vpp 2 needs --pp 2 or more, not 1"},
    {"no_virtual_stage", 2, "--pp 2 --vpp 0", "--vpp 0 must be at least 1"},
    {"layers_do_not_divide",
     4,
     "--pp 4",
     "the number of layers, 2, must be a positive multiple of the 4"},
    {"uneven_stage_alone", 1, "--last-stage-layers 1", "--last-stage-layers 1 needs --pp 2"},
    {"interleaved_micro_batches",
     2,
     "--pp 2 --vpp 2 --micro-batches 3",
     "the 3 micro-batches of each data-parallel rank must be a multiple of --pp 2"},
    {"sequence_parallelism_alone", 1, "--sp", "--sp needs --tp 2 or more"},
    {"zero1_on_one_replica",
     2,
     "--tp 2 --zero1",
     "--dp 1 times --cp 1 ranks, but needs at least 2"},
    {"overlap_of_nothing", 2, "--dp 2 --overlap-gather", "--overlap-gather needs --zero1"},
    {"micro_batches_do_not_divide", 2, "--dp 2 --micro-batches 3", "micro_batches 3"},
    {"unknown_precision", 1, "--precision f8", "it must be f64, f32, bf16"},
    {"no_annotations", 1, "--annotations /nowhere.yaml", "/nowhere.yaml"},
    {"unknown_device", 1, "--device tpu", "--device is `tpu`; it must be cpu or cuda"},
    {"device_of_a_number", 1, "--device cuda:1", "--device is `cuda:1`; it must be cpu or cuda"},
    {"device_that_torch_lacks",
     1,
     "--device xpu",
     "--device is `xpu`, which this build of PyTorch"},
    {"unknown_backend", 1, "--backend gloo", "--backend is `gloo`; it must be mpi or nccl"},
    {"nccl_on_cpus", 2, "--dp 2 --backend nccl", "--backend nccl carries tensors of GPUs"},
};

INSTANTIATE_TEST_SUITE_P(MegatronMini,
                         BadInputs,
                         ::testing::ValuesIn(kBadInputs),
                         [](const auto& input) { return input.param.name; });

// Where torch has CUDA, no GPU is to be seen.
TEST(MegatronMini, WithoutAGpuItSaysWhatIsMissingAndWhatHelps) {
  setenv("CUDA_VISIBLE_DEVICES", "", 1);
  const MiniProgram program;
  for (const std::string backend : {"", " --backend mpi"}) {
    const auto result = program.run(2, "--dp 2 --device cuda" + backend);
    EXPECT_EQ(result.exit_code, kBadInput);
    EXPECT_EQ(result.out, "");
    EXPECT_THAT(
        result.err,
        ::testing::AnyOf(HasSubstr("megatron_mini: --device cuda needs a CUDA build of PyTorch"),
                         HasSubstr("megatron_mini: --device cuda finds no such device")));
    EXPECT_THAT(result.err, HasSubstr("or use --device cpu"));
  }
  unsetenv("CUDA_VISIBLE_DEVICES");
}

TEST(MegatronMini, SequenceThatDoesNotFitItsChunksIsRefused) {
  const MiniProgram program({{"model.sequence", "36"}});
  const auto result = program.run(4, "--cp 4");
  EXPECT_EQ(result.exit_code, kBadInput);
  EXPECT_THAT(result.err, HasSubstr("--cp 4 needs a sequence that is a multiple of 8, not 36"));
}

TEST(MegatronMini, BugsOfTheSecondLayerAreRefusedByAModelOfOne) {
  const MiniProgram program({{"model.layers", "1"}});
  for (const std::string bug : {"scaled-linear", "softmax-scale", "stale-parameter"}) {
    const auto result = program.run(1, "--bug " + bug);
    EXPECT_EQ(result.exit_code, kBadInput);
    EXPECT_THAT(result.err, HasSubstr("bug `" + bug + "` cannot act in this run"));
    EXPECT_THAT(result.err, HasSubstr("layers >= 2"));
  }
}

TEST(MegatronMini, ExceptionOnOneRankEndsTheJob) {
  const auto result = run_ranks(2, {RANK_FAILURE_PROGRAM});
  EXPECT_FALSE(result.timed_out);
  EXPECT_NE(result.exit_code, 0);
  EXPECT_EQ(result.out, "");
}

}  // namespace
