// megatron_mini with features that may be switched on in any layout: dropout, recomputation, few
// query groups, frozen layers, smoothed labels, layers of TP degree 1.
#include "dropout.h"
#include "mini_program.h"
#include "recompute.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <ostream>
#include <string>
#include <vector>

namespace {

using megatron_mini::kept_elements;
using megatron_mini::testing::ConfigChange;
using megatron_mini::testing::expect_the_single_ranks_steps;
using megatron_mini::testing::MiniProgram;
using megatron_mini::testing::PrintedStep;
using megatron_mini::testing::RankLayout;
using megatron_mini::testing::steps_of;
using ::testing::HasSubstr;
using ::testing::SizeIs;

at::Tensor mask(const std::string& path, double probability, std::uint64_t draw) {
  return kept_elements(
      path,
      probability,
      draw,
      {{.size = 100, .indices = at::arange(100)}, {.size = 40, .indices = at::arange(40)}});
}

TEST(Dropout, PartOfAMaskIsThatPartOfTheWhole) {
  const at::Tensor whole = mask("layer.dropout", 0.25, 7);
  const at::Tensor rows = at::tensor({3, 50, 99}, at::kLong);
  const at::Tensor columns = at::tensor({39, 0, 5, 8}, at::kLong);
  const at::Tensor part = kept_elements(
      "layer.dropout", 0.25, 7, {{.size = 100, .indices = rows}, {.size = 40, .indices = columns}});
  EXPECT_TRUE(part.equal(whole.index_select(0, rows).index_select(1, columns)));
}

TEST(Dropout, MaskFollowsFromPathAndDrawAndDropsTheAskedShare) {
  const at::Tensor first = mask("layer.dropout", 0.25, 7);
  EXPECT_TRUE(first.equal(mask("layer.dropout", 0.25, 7)));
  EXPECT_FALSE(first.equal(mask("other.dropout", 0.25, 7)));
  EXPECT_FALSE(first.equal(mask("layer.dropout", 0.25, 8)));
  // 4000 draws: the standard deviation of the share is 0.007.
  EXPECT_NEAR(first.to(at::kDouble).mean().item<double>(), 0.75, 0.03);
  EXPECT_TRUE(mask("layer.dropout", 0.0, 7).all().item<bool>());
}

TEST(Dropout, WhatIsKeptGrowsByTheShareOfTheDropped) {
  const at::Tensor kept = at::tensor({1, 0, 1}, at::kLong).to(at::kBool);
  const at::Tensor values = at::tensor({3.0, 5.0, -6.0}, at::kDouble);
  EXPECT_TRUE(megatron_mini::drop(values, kept, 0.25)
                  .allclose(at::tensor({4.0, 0.0, -8.0}, at::kDouble), 1e-15, 1e-15));
}

// f(a, b) with a parameter inside; how often it ran, and whether the last run was a repetition.
struct CountedPart {
  at::Tensor weight = at::full({2}, 3.0, at::kDouble).requires_grad_(true);
  int runs = 0;
  bool was_repeated = false;

  at::Tensor operator()(const std::vector<at::Tensor>& inputs) {
    ++runs;
    was_repeated = megatron_mini::is_recomputing();
    return (inputs[0] * weight).exp() * inputs[1];
  }
};

TEST(Recompute, RunsAgainInBackwardAndGivesTheSameGradients) {
  const auto gradients = [](bool recomputed) {
    CountedPart part;
    const at::Tensor a = at::tensor({0.1, 0.2}, at::kDouble).requires_grad_(true);
    const at::Tensor b = at::tensor({2.0, 5.0}, at::kDouble).requires_grad_(true);
    const at::Tensor y =
        recomputed ? megatron_mini::recompute({a * 2.0, b}, std::ref(part)) : part({a * 2.0, b});
    EXPECT_EQ(part.runs, 1);
    EXPECT_FALSE(part.was_repeated);
    (y * y).sum().backward();
    EXPECT_EQ(part.runs, recomputed ? 2 : 1);
    EXPECT_EQ(part.was_repeated, recomputed);
    EXPECT_FALSE(megatron_mini::is_recomputing());
    return at::cat({y.detach(), a.grad(), b.grad(), part.weight.grad()});
  };
  EXPECT_TRUE(gradients(true).equal(gradients(false)));
}

TEST(Recompute, InputThatNeedsNoGradientGetsNone) {
  CountedPart part;
  const at::Tensor a = at::tensor({0.1, 0.2}, at::kDouble).requires_grad_(true);
  const at::Tensor b = at::tensor({2.0, 5.0}, at::kDouble);
  megatron_mini::recompute({a, b}, std::ref(part)).sum().backward();
  EXPECT_TRUE(a.grad().defined());
  EXPECT_FALSE(b.grad().defined());
}

// --- whole runs --------------------------------------------------------------------------------

std::vector<PrintedStep> two_steps_of(const MiniProgram& program,
                                      int ranks,
                                      const std::string& arguments) {
  auto steps = steps_of(program, ranks, arguments + " --steps 2 --digest");
  EXPECT_THAT(steps, SizeIs(2));
  return steps;
}

struct Feature {
  std::string name;
  std::vector<ConfigChange> changes;
};

const std::vector<Feature> kFeatures = {
    {"dropout", {{"model.dropout", "0.1"}, {"model.attention_dropout", "0.2"}}},
    {"one_query_group", {{"model.query_groups", "1"}}},
    {"two_query_groups", {{"model.query_groups", "2"}, {"model.attention_dropout", "0.2"}}},
    {"smoothed_labels_of_an_odd_vocabulary",
     {{"model.label_smoothing", "0.1"}, {"model.vocabulary", "331"}}},
    {"first_layer_frozen", {{"model.frozen", "[0]"}}},
    {"per_token", {{"loss", "per_token"}, {"data.masked", "prompt"}, {"model.vocabulary", "259"}}},
};

const std::vector<RankLayout> kFeatureLayouts = {
    {"tp4_sp", 4, "--tp 4 --sp"},
    {"tp2_sp_cp2", 4, "--tp 2 --sp --cp 2"},
    {"recompute_selective", 4, "--tp 2 --cp 2 --recompute selective"},
    {"layer_tp_sp", 4, "--tp 4 --sp --layer-tp 4,1"},
    {"layer_dp_sp", 4, "--tp 4 --sp --layer-tp 4,2 --layer-dp"},
    {"layer_dp_zero1", 4, "--tp 2 --dp 2 --zero1 --layer-tp 1,2 --layer-dp"},
};

class Features : public ::testing::TestWithParam<Feature> {};

TEST_P(Features, OfEveryRunEqualTheSingleRanks) {
  const MiniProgram program = MiniProgram::with(GetParam().changes);
  const auto single = two_steps_of(program, 1, "--precision f64");
  const auto plain = two_steps_of(MiniProgram(), 1, "--precision f64");
  EXPECT_NE(single.at(0).digest, plain.at(0).digest);
  expect_the_single_ranks_steps(program, kFeatureLayouts, 2);
}

INSTANTIATE_TEST_SUITE_P(MegatronMini,
                         Features,
                         ::testing::ValuesIn(kFeatures),
                         [](const auto& feature) { return feature.param.name; });

TEST(Features, RecomputationChangesNoBit) {
  const MiniProgram program({{"model.dropout", "0.1"}, {"model.attention_dropout", "0.1"}});
  for (const std::string layout : {"--tp 2 --sp", "--cp 2"}) {
    const auto plain = two_steps_of(program, 2, layout);
    for (const std::string what : {"full", "full --recompute-layers 2", "selective"}) {
      const auto again = two_steps_of(program, 2, layout + " --recompute " + what);
      EXPECT_EQ(again.at(1).digest, plain.at(1).digest) << layout << " " << what;
    }
  }
}

TEST(Features, FrozenLayerKeepsItsParameters) {
  const MiniProgram program({{"model.frozen", "[0, 1]"}});
  const MiniProgram other({{"model.frozen", "[1]"}});
  EXPECT_LT(two_steps_of(program, 1, "").at(0).grad_norm,
            two_steps_of(other, 1, "").at(0).grad_norm);
}

// Symptom: the stage's ranks ended with "expected a non-empty list of Tensors" under sequence
// parallelism.
TEST(Features, StageOfAFrozenLayerAloneTrainsLikeTheRest) {
  const MiniProgram program({{"model.layers", "3"}, {"model.frozen", "[1]"}});
  const double single = two_steps_of(program, 1, "").at(1).grad_norm;
  EXPECT_NEAR(
      two_steps_of(program, 6, "--pp 3 --tp 2 --sp").at(1).grad_norm, single, 1e-2 * single);
}

struct Refusal {
  std::string name;
  int ranks;
  std::string arguments;
  std::vector<ConfigChange> changes;
  std::string says;
};

std::ostream& operator<<(std::ostream& out, const Refusal& refusal) {
  return out << refusal.arguments;
}

class Refusals : public ::testing::TestWithParam<Refusal> {};

TEST_P(Refusals, NameTheTwoNumbersThatClash) {
  const auto result =
      MiniProgram::with(GetParam().changes).run(GetParam().ranks, GetParam().arguments);
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_FALSE(result.timed_out);
  EXPECT_THAT(result.err, HasSubstr(GetParam().says));
  EXPECT_EQ(result.out, "");
  // One rank speaks: the program's name occurs once.
  const auto first = result.err.find("megatron_mini: ");
  ASSERT_NE(first, std::string::npos) << result.err;
  EXPECT_EQ(result.err.find("megatron_mini: ", first + 1), std::string::npos) << result.err;
}

const Refusal kRefusals[] = {
    {"recompute_nothing", 1, "--recompute some", {}, "--recompute is `some`; it must be full"},
    {"layers_without_full", 1, "--recompute-layers 2", {}, "needs --recompute full"},
    {"too_many_layers",
     1,
     "--recompute full --recompute-layers 3",
     {},
     "--recompute-layers 3 must lie between 1 and the number of layers, which is 2"},
    {"degree_of_a_layer",
     4,
     "--tp 4 --layer-tp 4,2",
     {},
     "--layer-tp has the degree `2`, which is neither 1 nor --tp 4"},
    {"degree_that_does_not_divide",
     4,
     "--tp 4 --layer-tp 4,3 --layer-dp",
     {},
     "--layer-tp has the degree `3`, which does not divide --tp 4"},
    {"no_degrees", 2, "--tp 2 --layer-dp", {}, "--layer-dp needs --layer-tp LIST"},
    {"samples_of_a_layer",
     4,
     "--tp 4 --layer-tp 4,1 --layer-dp",
     {{"data.micro_batch_size", "2"}},
     "leaves 4 ranks to divide micro_batch_size 2"},
    {"degree_before_a_border",
     4,
     "--tp 2 --pp 2 --layer-tp 1,2 --layer-dp",
     {},
     "layer 0 is the last one of a pipeline stage"},
    {"degrees_for_too_few_layers",
     2,
     "--tp 2 --layer-tp 2,1,2",
     {},
     "--layer-tp has 3 degrees, but the model has 2 layers"},
    {"query_groups",
     2,
     "--tp 2",
     {{"model.heads", "6"}, {"model.hidden", "48"}, {"model.query_groups", "3"}},
     "--tp 2 is neither a divisor nor a multiple of query_groups 3"},
    {"heads", 3, "--tp 3", {}, "--tp 3 does not divide heads 8"},
    {"rows_of_qkv",
     3,
     "--tp 3",
     {{"model.heads", "3"},
      {"model.hidden", "30"},
      {"model.query_groups", "1"},
      {"model.ffn", "36"}},
     "--tp 3 does not divide the rows of linear_qkv, 50"},
    {"ffn", 2, "--tp 2", {{"model.ffn", "33"}}, "--tp 2 does not divide ffn 33"},
    {"groups_of_heads",
     1,
     "",
     {{"model.query_groups", "3"}},
     "heads 8 must be a multiple of query_groups 3"},
    {"head_of_one_number", 1, "", {{"model.hidden", "8"}}, "hidden 8 must be an even multiple"},
    {"rows_of_sequence_parallelism",
     4,
     "--tp 4 --sp",
     {{"model.sequence", "30"}},
     "--tp 4 does not divide sequence 30"},
    {"sequence_beyond_the_text",
     1,
     "",
     {{"model.sequence", "1000000"}},
     "bytes, which must be more than the sequence length 1000000"},
    {"vocabulary", 1, "", {{"model.vocabulary", "256"}}, "vocabulary 256 must be at least 257"},
    {"no_ranks_of_an_axis", 1, "--tp 0", {}, "--tp 0 must divide the number of ranks, which is 1"},
    {"fewer_than_no_ranks", 1, "--dp -1", {}, "times --dp -1 times"},
    {"no_expert_ranks", 1, "--ep 0", {}, "--etp 1 times --ep 0 must divide"},
    // Symptom: a division by zero, because the product was taken in 32 bits.
    {"expert_ranks_beyond_all_numbers",
     1,
     "--ep 65536 --etp 65536",
     {{"model.experts", "4"}},
     "--etp 65536 times --ep 65536 must divide --tp times --cp times --dp, which is 1"},
    {"experts_in_fp8",
     1,
     "--precision fp8",
     {{"model.experts", "4"}},
     "--precision fp8 with model.experts 4 is not implemented"},
    {"fp8_blocks",
     2,
     "--tp 2 --precision fp8",
     {{"fp8.recipe", "blockwise"}, {"model.hidden", "128"}},
     "--tp 2 leaves 64 of hidden 128 to a rank, which cuts the blocks of 128"},
    {"fp8_blocks_of_qkv",
     2,
     "--tp 2 --precision fp8",
     {{"fp8.recipe", "mxfp8"},
      {"model.hidden", "64"},
      {"model.heads", "4"},
      {"model.query_groups", "1"},
      {"model.ffn", "64"}},
     "--tp 2 leaves 48 of the rows of linear_qkv, 96 to a rank, which cuts the blocks of 32"},
    {"dropout", 1, "", {{"model.dropout", "1.0"}}, "must be at least 0 and below 1, not 1"},
    {"frozen",
     1,
     "",
     {{"model.frozen", "[2]"}},
     "frozen names layer 2, but the model has layers 0 to 1"},
};

INSTANTIATE_TEST_SUITE_P(MegatronMini,
                         Refusals,
                         ::testing::ValuesIn(kRefusals),
                         [](const auto& refusal) { return refusal.param.name; });

}  // namespace
