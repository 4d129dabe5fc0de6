#include "analysis/align/model_vocabulary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ttrace {
namespace {

TEST(ModelVocabulary, KnowsTheUsualNames) {
  const ModelVocabulary usual;
  EXPECT_TRUE(usual.is(Role::kAttention, "decoder.layers.0.self_attention.core_attention"));
  EXPECT_FALSE(usual.is(Role::kAttention, "decoder.layers.0.mlp"));
  EXPECT_TRUE(usual.is(Role::kTokens, "tokens"));
  EXPECT_FALSE(usual.is(Role::kTokens, "tokens_per_rank"));
  EXPECT_TRUE(usual.is(Role::kGradientNorm, "grad_norm"));
  EXPECT_TRUE(usual.is(Role::kLoss, "mean_loss"));
  EXPECT_TRUE(usual.is(Role::kLossMask, "loss_mask"));
  EXPECT_TRUE(usual.is(Role::kDataParallel, "dp"));
  EXPECT_FALSE(usual.is(Role::kContextParallel, "cp_copy"));
}

// Symptom: layers, heads and tokens of a program with names of its own were not found, and nothing
// said so.
TEST(ModelVocabulary, TakesTheNamesOfAProgram) {
  const ModelVocabulary own(
      {{"attention", "*.attn *.attn.*"}, {"layers", "h transformer.h"}, {"tokens", "input_ids"}});
  EXPECT_TRUE(own.is(Role::kAttention, "h.0.attn"));
  EXPECT_TRUE(own.is(Role::kAttention, "h.0.attn.c_proj"));
  EXPECT_FALSE(own.is(Role::kAttention, "h.0.self_attention"));
  EXPECT_TRUE(own.is(Role::kTokens, "input_ids"));
  EXPECT_FALSE(own.is(Role::kTokens, "tokens"));
  EXPECT_TRUE(own.is(Role::kLossMask, "loss_mask")) << "what is not given stays usual";
  const auto layer = own.numbered(Role::kLayers, "transformer.h.11.mlp.c_fc");
  ASSERT_TRUE(layer);
  EXPECT_EQ(layer->before, "transformer.h.");
  EXPECT_EQ(layer->number, 11);
  EXPECT_EQ(layer->after, ".mlp.c_fc");
}

TEST(ModelVocabulary, FindsNumbersOfLayersAndWhatLiesBelowExperts) {
  const ModelVocabulary usual;
  const auto layer = usual.numbered(Role::kLayers, "decoder.layers.2");
  ASSERT_TRUE(layer);
  EXPECT_EQ(layer->number, 2);
  EXPECT_EQ(layer->after, "");
  EXPECT_FALSE(usual.numbered(Role::kLayers, "decoder.layers"));
  EXPECT_FALSE(usual.numbered(Role::kLayers, "decoder.layers.norm"));
  EXPECT_FALSE(usual.numbered(Role::kLayers, "decoder.blocks.2"));
  EXPECT_TRUE(
      usual.differ_in_number(Role::kLayers, "decoder.layers.1.mlp", "decoder.layers.3.mlp"));
  EXPECT_FALSE(
      usual.differ_in_number(Role::kLayers, "decoder.layers.1.mlp", "decoder.layers.3.norm"));
  const TensorId first{.microbatch = 0, .path = "decoder.layers.1.mlp"};
  const TensorId third{.microbatch = 0, .path = "decoder.layers.3.mlp"};
  EXPECT_TRUE(usual.differ_in_number(Role::kLayers, first, third));
  EXPECT_FALSE(usual.differ_in_number(
      Role::kLayers, first, TensorId{.microbatch = 1, .path = "decoder.layers.3.mlp"}));
  EXPECT_TRUE(usual.is_below(Role::kExperts, "decoder.layers.1.mlp.experts.linear_fc1.weight"));
  EXPECT_FALSE(usual.is_below(Role::kExperts, "decoder.layers.1.mlp.experts"));
}

TEST(ModelVocabulary, HasARoleOnlyWhereNamesAreUsualOrGiven) {
  EXPECT_TRUE(ModelVocabulary().has(Role::kAttention));
  EXPECT_FALSE(ModelVocabulary().has(Role::kHiddenChoices));
  EXPECT_TRUE(ModelVocabulary(Section{{"hidden_choices", "layers.0"}}).has(Role::kHiddenChoices));
}

TEST(ModelVocabulary, TakesTheLargestAxisOfARole) {
  Layout layout;
  layout.world_size = 8;
  layout.add("dp", 2, 0).add("ring", 4, 0);
  const ModelVocabulary own(Section{{"context_parallel", "cp ring"}});
  EXPECT_EQ(own.axis_size(Role::kContextParallel, layout), 4);
  EXPECT_EQ(own.axis_size(Role::kDataParallel, layout), 2);
  EXPECT_EQ(ModelVocabulary().axis_size(Role::kContextParallel, layout), 1);
}

TEST(Heads, AreThoseOfAttentionModules) {
  const Heads heads{16, ModelVocabulary(Section{{"attention", "*.attn"}})};
  EXPECT_EQ(heads.size_in({.path = "h.0.attn"}), 16);
  EXPECT_EQ(heads.size_in({.path = "h.0.mlp"}), 0);
}

}  // namespace
}  // namespace ttrace
