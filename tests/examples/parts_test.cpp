// Parts of megatron_mini that need no other rank.
#include "attention.h"
#include "batch.h"
#include "config.h"
#include "error.h"
#include "faults/attention_faults.h"
#include "faults/conditions.h"
#include "faults/planted.h"
#include "gpt_model.h"
#include "main_gradients.h"
#include "mini_program.h"
#include "mixed_precision_optimizer.h"
#include "plain_parts.h"
#include "text_data.h"
#include "trainer.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <fstream>
#include <string>
#include <tuple>
#include <vector>

namespace {

using megatron_mini::Blueprint;
using megatron_mini::GptModel;
using megatron_mini::Parallel;
using megatron_mini::ParameterRole;
using megatron_mini::plain_parts;
using megatron_mini::TextData;
using megatron_mini::faults::parts_with_bug;
using megatron_mini::testing::MiniProgram;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ttrace::Kind;

// The message of the UsageError that `action` throws.
template <class Action>
std::string usage_error(const Action& action) {
  try {
    action();
  } catch (const megatron_mini::UsageError& error) {
    return error.what();
  }
  return "no error";
}

// This rank of a tp-way split, for what does not communicate.
Parallel split(int tp, int rank, bool sequence_parallel) {
  return {.world = {.name = "world", .rank = rank, .size = tp},
          .tp = {.name = "tp", .rank = rank, .size = tp},
          .cp = {.name = "cp"},
          .dp = {.name = "dp"},
          .dp_cp = {.name = "dp_cp"},
          .pp = {.name = "pp"},
          .sequence_parallel = sequence_parallel};
}

TEST(TextData, SamplesFollowFromSeedStepMicrobatchAndNumber) {
  const ttrace::testing::TemporaryDirectory folder;
  std::string bytes;
  for (int i = 0; i < 256; ++i) {
    bytes.push_back(static_cast<char>(i));
  }
  std::ofstream(folder / "text", std::ios::binary) << bytes;
  const TextData text = TextData::load(folder / "text", 8, 257);
  // Offsets 71, 123 and 209 were computed independently; byte i of this text is i.
  EXPECT_THAT(text.sample({.seed = 1, .step = 0, .microbatch = 0, .sample = 0}),
              ElementsAre(256, 71, 72, 73, 74, 75, 76, 77, 78));
  EXPECT_EQ(text.sample({.seed = 7, .step = 3, .microbatch = 5, .sample = 2})[1], 123);
  EXPECT_EQ(text.sample({.seed = ~0ULL, .step = 1, .microbatch = 2, .sample = 3})[1], 209);
}

// Computed independently.
TEST(TextData, PromptIsUpToHalfOfASample) {
  const MiniProgram program;
  const TextData text = TextData::load(program.text(), 8, 257);
  const auto prompt = [&](std::int64_t sample) {
    return text.prompt_length({.seed = 1, .step = 0, .microbatch = 0, .sample = sample});
  };
  EXPECT_THAT((std::vector<std::int64_t>{prompt(0), prompt(1), prompt(2), prompt(3)}),
              ElementsAre(1, 1, 4, 3));
}

// Computed independently.
TEST(TextData, PackedDocumentsFillTheSample) {
  const MiniProgram program;
  const auto cuts = [&](std::int64_t sequence, std::int64_t sample) {
    return TextData::load(program.text(), sequence, 257)
        .cu_seqlens({.seed = 1, .step = 0, .microbatch = 0, .sample = sample});
  };
  EXPECT_THAT(cuts(4, 0), ElementsAre(0, 2, 4));
  EXPECT_THAT(cuts(8, 0), ElementsAre(0, 3, 5, 8));
  EXPECT_THAT(cuts(8, 1), ElementsAre(0, 3, 8));
  EXPECT_THAT(cuts(16, 3), ElementsAre(0, 2, 5, 8, 14, 16));
}

// Tensors of load_batch by name, of sample 1.
std::vector<std::int64_t> row(const at::Tensor& tensor) {
  const at::Tensor values = tensor.to(at::kLong).contiguous();
  return {values.const_data_ptr<std::int64_t>(),
          values.const_data_ptr<std::int64_t>() + values.numel()};
}

TEST(Batch, PackedDocumentsBeginAnewAndDoNotCountTheirLastToken) {
  const MiniProgram program;
  const TextData text = TextData::load(program.text(), 8, 257);
  megatron_mini::DataConfig data{.file = program.text(), .seed = 1, .micro_batch_size = 2};
  const megatron_mini::SampleKey key{.seed = 1, .step = 0, .microbatch = 0, .sample = 0};
  const auto plain = load_batch(text, data, key);
  EXPECT_FALSE(plain.places.documents.defined());
  EXPECT_THAT(row(plain.places.positions.select(1, 1)), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  EXPECT_TRUE(plain.loss_mask.all().item<bool>());

  data.documents = megatron_mini::Documents::kPacked;
  data.masked = megatron_mini::Masked::kPrompt;
  const auto packed = load_batch(text, data, key);  // sample 0: 3, 2, 3 tokens, 1 of them a prompt
  const auto bytes = row(plain.labels[0]);
  EXPECT_THAT(row(packed.tokens[0]),
              ElementsAre(256, bytes[0], bytes[1], 256, bytes[3], 256, bytes[5], bytes[6]));
  EXPECT_THAT(row(packed.labels[0]),
              ElementsAre(bytes[0], bytes[1], 256, bytes[3], 256, bytes[5], bytes[6], 256));
  EXPECT_THAT(row(packed.loss_mask[0]), ElementsAre(0, 1, 0, 1, 0, 1, 1, 0));
  EXPECT_THAT(row(packed.places.positions.select(1, 0)), ElementsAre(0, 1, 2, 0, 1, 0, 1, 2));
  EXPECT_THAT(row(packed.places.documents.select(1, 1)), ElementsAre(0, 0, 0, 1, 1, 1, 1, 1));
}

TEST(Batch, RankOfTwoHoldsTheFirstAndTheLastQuarter) {
  const MiniProgram program;
  const TextData text = TextData::load(program.text(), 8, 257);
  const megatron_mini::DataConfig data{.file = program.text(),
                                       .seed = 1,
                                       .micro_batch_size = 2,
                                       .documents = megatron_mini::Documents::kPacked,
                                       .masked = megatron_mini::Masked::kPrompt};
  const auto whole = reordered(load_batch(text, data, {.seed = 1, .step = 0, .microbatch = 0}),
                               at::tensor({1, 0}, at::kLong));
  const auto part = part_of_rank(whole, {.name = "cp", .rank = 0, .size = 2});
  const auto quarters = [](const at::Tensor& tensor, std::int64_t dimension) {
    return at::cat({tensor.narrow(dimension, 0, 2), tensor.narrow(dimension, 6, 2)}, dimension);
  };
  EXPECT_TRUE(part.tokens.equal(quarters(whole.tokens, 1)));
  EXPECT_TRUE(part.labels.equal(quarters(whole.labels, 1)));
  EXPECT_TRUE(part.loss_mask.equal(quarters(whole.loss_mask, 1)));
  EXPECT_TRUE(part.places.positions.equal(quarters(whole.places.positions, 0)));
  EXPECT_TRUE(part.places.documents.equal(whole.places.documents));
  EXPECT_THAT(row(whole.places.positions.select(1, 1)), ElementsAre(0, 1, 2, 0, 1, 0, 1, 2));
}

TEST(TextData, DigestIsThatOfTheBytes) {
  const ttrace::testing::TemporaryDirectory folder;
  std::ofstream(folder / "a") << "one two three";
  std::ofstream(folder / "b") << "one two three";
  std::ofstream(folder / "c") << "one two four!";
  const auto digest = [&](const char* name) {
    return TextData::load(folder / name, 4, 257).digest();
  };
  EXPECT_EQ(digest("a"), digest("b"));
  EXPECT_NE(digest("a"), digest("c"));
  EXPECT_TRUE(::testing::Value(digest("a"), ::testing::MatchesRegex("[0-9a-f]{16}")));
}

TEST(TextData, TooShortForeignOrAbsentTextIsRefused) {
  const ttrace::testing::TemporaryDirectory folder;
  std::ofstream(folder / "short") << "12345678";
  EXPECT_THAT(usage_error([&] { TextData::load(folder / "short", 8, 257); }),
              HasSubstr("must be more than the sequence length 8"));
  EXPECT_THAT(usage_error([&] { TextData::load(folder / "short", 4, 50); }),
              HasSubstr("not a token of a vocabulary of 50"));
  EXPECT_THAT(usage_error([&] { TextData::load(folder / "absent", 4, 257); }), HasSubstr("absent"));
}

TEST(Config, UnknownMissingAndBadKeysAreNamed) {
  const auto load = [](const MiniProgram& program) {
    return usage_error([&] { std::ignore = megatron_mini::load_config(program.config()); });
  };
  EXPECT_THAT(load(MiniProgram({{"model.widht", "3"}})),
              HasSubstr("the unknown key `model.widht`"));
  EXPECT_THAT(load(MiniProgram({{"model.layers", "two"}})), HasSubstr("`model.layers`"));
  EXPECT_THAT(load(MiniProgram({{"model.layers", "0"}})), HasSubstr("must be above 0"));
  EXPECT_THAT(load(MiniProgram({{"model.activation", "relu"}})), HasSubstr("gelu or swiglu"));
  EXPECT_THAT(load(MiniProgram({{"model.heads", "64"}})), HasSubstr("even multiple of heads"));
  EXPECT_THAT(load(MiniProgram({{"model.query_groups", "3"}})), HasSubstr("query_groups 3"));
  EXPECT_THAT(load(MiniProgram({{"optimizer.clip", "[1]"}})), HasSubstr("`optimizer.clip`"));
  EXPECT_THAT(load(MiniProgram({{"data.masked", "all"}})),
              HasSubstr("it must be one of none, prompt"));
  EXPECT_EQ(load(MiniProgram({{"data.masked", "prompt"}})), "no error");
  EXPECT_THAT(load(MiniProgram({{"data.documents", "packed"}, {"model.sequence", "3"}})),
              HasSubstr("packed documents need a sequence of at least 4, not 3"));
  EXPECT_EQ(load(MiniProgram()), "no error");
}

TEST(CheckDivisible, NamesTheTwoNumbersThatClash) {
  const auto refusal = [](std::int64_t sequence, int tp, int cp) {
    const MiniProgram program({{"model.sequence", std::to_string(sequence)}});
    Parallel parallel = split(tp, 0, tp > 1);
    parallel.cp.size = cp;
    return usage_error(
        [&] { check_divisible(megatron_mini::load_config(program.config()).model, parallel); });
  };
  EXPECT_EQ(refusal(24, 4, 2), "no error");
  EXPECT_EQ(refusal(24, 1, 5), "--cp 5 needs a sequence that is a multiple of 10, not 24");
  EXPECT_EQ(refusal(20, 4, 2),
            "--tp 4 does not divide the rows of the sequence that --cp leaves to a rank, 10");
  EXPECT_EQ(refusal(22, 4, 1), "--tp 4 does not divide sequence 22");
}

TEST(PaddedVocabulary, IsAMultipleOf64PerRank) {
  EXPECT_EQ(megatron_mini::padded_vocabulary(257, 1), 320);
  EXPECT_EQ(megatron_mini::padded_vocabulary(257, 2), 384);
  EXPECT_EQ(megatron_mini::padded_vocabulary(256, 4), 256);
}

TEST(Rotate, TurnsHalvesByPositionOverBaseToThePower) {
  // One head of size 4 at positions 0 and 3: pairs (0, 2) and (1, 3).
  const at::Tensor heads = at::arange(1, 9).to(at::kDouble).view({2, 1, 1, 4});
  const at::Tensor positions = at::tensor({0, 3}, at::kLong).unsqueeze(1);
  const at::Tensor turned = megatron_mini::rotate(heads, positions, 100);
  EXPECT_TRUE(turned[0].equal(heads[0]));
  const double first = 3.0;          // position / 100^(0/4)
  const double second = 3.0 / 10.0;  // position / 100^(2/4)
  const auto element = [&](int i) { return turned[1][0][0][i].item<double>(); };
  EXPECT_NEAR(element(0), 5 * std::cos(first) - 7 * std::sin(first), 1e-14);
  EXPECT_NEAR(element(1), 6 * std::cos(second) - 8 * std::sin(second), 1e-14);
  EXPECT_NEAR(element(2), 7 * std::cos(first) + 5 * std::sin(first), 1e-14);
  EXPECT_NEAR(element(3), 8 * std::cos(second) + 6 * std::sin(second), 1e-14);
}

TEST(CoreAttention, TokensSeeOnlyThePastOfTheirGroup) {
  // Two query heads share one key/value head; values differ by position.
  const at::Tensor query = at::zeros({3, 1, 2, 2}, at::kDouble);
  const at::Tensor key = at::zeros({3, 1, 1, 2}, at::kDouble);
  const at::Tensor value = at::arange(6).to(at::kDouble).view({3, 1, 1, 2});
  const at::Tensor context = megatron_mini::CoreAttention().forward(query, key, value);
  // Equal scores: the mean of the values so far, for both heads.
  const at::Tensor expected =
      at::tensor({0.0, 1.0, 0.0, 1.0, 1.0, 2.0, 1.0, 2.0, 2.0, 3.0, 2.0, 3.0}, at::kDouble);
  EXPECT_TRUE(at::allclose(context, expected.view({3, 1, 4}), 1e-15, 1e-15)) << context;
}

TEST(CoreAttention, TokensDoNotSeeOtherDocuments) {
  const at::Tensor zeros = at::zeros({4, 2, 1, 1}, at::kDouble);
  const at::Tensor value = at::arange(8).to(at::kDouble).view({4, 2, 1, 1});
  const at::Tensor documents = at::tensor({0, 0, 0, 1, 1, 1, 1, 2}, at::kLong).view({4, 2});
  megatron_mini::TokenPlaces places;
  places.documents = documents;
  const at::Tensor context = megatron_mini::CoreAttention().forward(zeros, zeros, value, places);
  // Means over documents so far: of {0, 2} and {4, 6}, then of {1}, {3, 5}, {7}.
  const at::Tensor expected = at::tensor({0.0, 1.0, 1.0, 3.0, 4.0, 4.0, 5.0, 7.0}, at::kDouble);
  EXPECT_TRUE(at::allclose(context, expected.view({4, 2, 1}), 1e-15, 1e-15)) << context;
}

TEST(Bugs, HaveTheirOwnSizeUnlessAnotherIsAskedFor) {
  EXPECT_EQ(megatron_mini::faults::Size()(1.0), 1.0);
  EXPECT_EQ(megatron_mini::faults::Size(3.0)(1.0), 3.0);
}

TEST(Bugs, NeedsAreConditionsOverTheRun) {
  using megatron_mini::faults::holds;
  const megatron_mini::faults::RunFacts run = {
      {"tp", 2}, {"dp", 4}, {"sp", 0}, {"micro_batches", 8}, {"precision", 7}, {"bf16", 7}};
  EXPECT_TRUE(holds("always", run));
  EXPECT_TRUE(holds("tp >= 2", run));
  EXPECT_FALSE(holds("tp >= 2 and sp", run));
  EXPECT_TRUE(holds("tp >= 2 and not sp", run));
  EXPECT_TRUE(holds("micro_batches >= 2 * dp", run));
  EXPECT_FALSE(holds("micro_batches >= 4 * dp or sp", run));
  EXPECT_TRUE(holds("precision == bf16 and (sp or tp < dp)", run));
  EXPECT_TRUE(holds("dp", run));
}

TEST(Bugs, NeedsThatAreNoConditionAreRefused) {
  using megatron_mini::faults::holds;
  const megatron_mini::faults::RunFacts run = {{"tp", 2}};
  for (const char* text : {"", "tp >=", "pp >= 2", "tp 2", "(tp", "tp >= 2 and"}) {
    EXPECT_THROW((void)holds(text, run), megatron_mini::InternalError) << text;
  }
}

TEST(ScalesScores, MultipliesThemByItsSize) {
  const at::Tensor query = at::arange(12).to(at::kDouble).sin().view({3, 1, 2, 2});
  const at::Tensor key = at::arange(6).to(at::kDouble).cos().view({3, 1, 1, 2});
  const at::Tensor value = at::arange(6).to(at::kDouble).view({3, 1, 1, 2});
  const auto context = [&](const at::Tensor& q, double factor) {
    return megatron_mini::faults::ScalesScores(factor).forward(q, key, value);
  };
  EXPECT_TRUE(context(query, 2.0).equal(context(query * 2.0, 1.0)));
  EXPECT_FALSE(at::allclose(context(query, 2.0), context(query, 1.0)));
  EXPECT_TRUE(context(query, 1.0).equal(megatron_mini::CoreAttention().forward(query, key, value)));
}

std::shared_ptr<GptModel> plain_model(const megatron_mini::ModelConfig& model,
                                      const Parallel& parallel) {
  return std::make_shared<GptModel>(
      Blueprint{.model = model,
                .parallel = parallel,
                .parts = std::make_shared<const megatron_mini::Parts>(plain_parts())});
}

TEST(GptModel, ParametersAreNamedAsMegatrons) {
  const MiniProgram program({{"model.layers", "1"}});
  const auto config = megatron_mini::load_config(program.config());
  const auto model = plain_model(config.model, split(1, 0, false));
  std::vector<std::string> names;
  for (const auto& parameter : model->model_parameters()) {
    names.push_back(parameter.path);
  }
  EXPECT_THAT(names,
              ElementsAre("embedding.word_embeddings.weight",
                          "decoder.layers.0.input_layernorm.weight",
                          "decoder.layers.0.input_layernorm.bias",
                          "decoder.layers.0.self_attention.linear_qkv.weight",
                          "decoder.layers.0.self_attention.linear_qkv.bias",
                          "decoder.layers.0.self_attention.linear_proj.weight",
                          "decoder.layers.0.self_attention.linear_proj.bias",
                          "decoder.layers.0.pre_mlp_layernorm.weight",
                          "decoder.layers.0.pre_mlp_layernorm.bias",
                          "decoder.layers.0.mlp.linear_fc1.weight",
                          "decoder.layers.0.mlp.linear_fc1.bias",
                          "decoder.layers.0.mlp.linear_fc2.weight",
                          "decoder.layers.0.mlp.linear_fc2.bias",
                          "decoder.final_layernorm.weight",
                          "decoder.final_layernorm.bias",
                          "output_layer.weight"));
  std::vector<std::string> registered;
  for (const auto& item : model->named_parameters()) {
    registered.push_back(item.key());
  }
  EXPECT_EQ(names, registered);
}

// Annotations as the program uses them: local shards of two ranks cover each logical parameter,
// and what is replicated is a partial sum in its gradient only.
TEST(Annotations, FitEveryParameterOfEveryRank) {
  for (const std::string activation : {"gelu", "swiglu"}) {
    const MiniProgram program({{"model.activation", activation}});
    megatron_mini::Options options;
    options.config = program.config();
    options.annotations = std::string(MEGATRON_MINI_FOLDER) + "/gpt.ttrace.yaml";
    const auto plan = megatron_mini::read_plan(options, nullptr);
    const Parallel parallel = split(2, 1, true);
    const auto model = plain_model(plan.config.model, parallel);
    const auto layout = layout_of(parallel, plan.config.model.query_groups);
    for (const auto& parameter : model->model_parameters()) {
      const auto& [path, tensor, role, chunk, is_second_copy, ranks] = parameter;
      EXPECT_EQ(chunk, 0);
      EXPECT_FALSE(is_second_copy || ranks.has_value());
      ASSERT_TRUE(plan.annotations.find(Kind::kParam, path).has_value()) << path;
      const auto place = [&](Kind kind) {
        return plan.annotations.placement(kind, path, 0, tensor.sizes(), layout);
      };
      const bool is_split = role == ParameterRole::kSplit;
      EXPECT_EQ(place(Kind::kParam).is_whole(), !is_split) << path;
      EXPECT_EQ(place(Kind::kMainGrad), place(Kind::kParam)) << path;
      EXPECT_EQ(place(Kind::kParamGrad).partial_count, is_split ? 1 : 2) << path;
      EXPECT_EQ(place(Kind::kParamGrad).local_shape(), tensor.sizes().vec()) << path;
    }
  }
}

TEST(Annotations, PutTheVocabularysPaddingBehindItsEnd) {
  const MiniProgram program;
  megatron_mini::Options options;
  options.config = program.config();
  options.annotations = std::string(MEGATRON_MINI_FOLDER) + "/gpt.ttrace.yaml";
  const auto plan = megatron_mini::read_plan(options, nullptr);
  const std::vector<std::int64_t> shape = {192, 64};  // of 384 rows in all
  const auto placement = plan.annotations.placement(
      Kind::kParam, "embedding.word_embeddings.weight", 0, shape, layout_of(split(2, 1, false), 4));
  EXPECT_EQ(placement.logical_shape(), (std::vector<std::int64_t>{257, 64}));
  ASSERT_EQ(placement.dims[0].segments.size(), 1U);
  EXPECT_EQ(placement.dims[0].segments[0], (ttrace::Segment{0, 192, 65}));
}

TEST(MainGradients, CollectMicroBatchesInF32AndClip) {
  const at::Tensor parameter = at::zeros({2, 2}, at::kBFloat16).requires_grad_(true);
  megatron_mini::MainGradients gradients(
      {{.path = "p", .tensor = parameter, .role = ParameterRole::kSplit}}, split(1, 0, false));
  for (int microbatch = 0; microbatch < 2; ++microbatch) {
    (parameter * 1.5).sum().backward();
    gradients.accumulate(microbatch);
    EXPECT_FALSE(parameter.grad().defined());
  }
  gradients.reduce(megatron_mini::Loss::kMean);
  EXPECT_EQ(gradients.reduced()[0].scalar_type(), at::kFloat);
  EXPECT_TRUE(gradients.reduced()[0].equal(at::full({2, 2}, 3.0)));
  EXPECT_EQ(gradients.norm(), 6.0);
  gradients.divide(0.5);
  EXPECT_EQ(gradients.norm(), 12.0);
  gradients.divide(2.0);
  gradients.clip(6.0, 100.0);
  EXPECT_EQ(gradients.norm(), 6.0);
  gradients.clip(6.0, 1.5);
  EXPECT_NEAR(gradients.norm(), 1.5, 1e-5);
  gradients.zero(0);
  EXPECT_EQ(gradients.norm(), 0.0);
}

TEST(MainGradients, ParameterWithoutGradientIsAnError) {
  const at::Tensor parameter = at::zeros({2}).requires_grad_(true);
  megatron_mini::MainGradients gradients(
      {{.path = "decoder.lost", .tensor = parameter, .role = ParameterRole::kSplit}},
      split(1, 0, false));
  EXPECT_THROW(gradients.accumulate(0), megatron_mini::InternalError);
}

TEST(MainGradients, DroppedMicrobatchIsTakenAwayAndNotAdded) {
  const at::Tensor parameter = at::zeros({2}).requires_grad_(true);
  const auto gradients =
      parts_with_bug("dropped-microbatch")
          .gradients({{.path = "p", .tensor = parameter, .role = ParameterRole::kSplit}},
                     split(1, 0, false));
  for (int microbatch = 0; microbatch < 4; ++microbatch) {
    (parameter * std::pow(10.0, microbatch)).sum().backward();
    gradients->accumulate(microbatch);
    EXPECT_FALSE(parameter.grad().defined());
  }
  EXPECT_TRUE(gradients->reduced()[0].equal(at::full({2}, 1101.0)));
}

// There is no communication, so the groups of split() do not exist.
TEST(MainGradients, LocalNormCountsEveryTensorOfThisRankAndNoOther) {
  const at::Tensor shard = at::zeros({2}).requires_grad_(true);
  const at::Tensor replicated = at::zeros({1}).requires_grad_(true);
  const auto gradients = parts_with_bug("local-clip-norm")
                             .gradients({{.path = "shard", .tensor = shard},
                                         {.path = "replicated",
                                          .tensor = replicated,
                                          .role = ParameterRole::kReplicatedNorm}},
                                        split(2, 1, false));
  (shard.sum() * 2.0 + replicated.sum()).backward();
  gradients->accumulate(0);
  EXPECT_EQ(gradients->norm(), 3.0);  // 2^2 + 2^2 + 1^2
}

TEST(MixedPrecisionOptimizer, StaleParameterKeepsItsValueBesideAnUpdatedMaster) {
  const std::string stale = "decoder.layers.1.mlp.linear_fc1.weight";
  const auto parameter = [](const std::string& path) {
    return megatron_mini::ModelParameter{.path = path, .tensor = at::ones({2, 2}, at::kBFloat16)};
  };
  const std::vector<megatron_mini::ModelParameter> parameters = {parameter(stale),
                                                                 parameter("other.weight")};
  const at::Tensor gradient = at::ones({2, 2});
  const megatron_mini::OptimizerConfig config{
      .learning_rate = 0.25, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8};
  const auto buckets = flat_buckets(parameters, {}, false);
  const auto optimizer =
      parts_with_bug("stale-parameter")
          .optimizer(
              parameters, owned_parts(parameters, buckets, false), {gradient, gradient}, config);
  optimizer->step();
  EXPECT_TRUE(parameters[0].tensor.equal(at::ones({2, 2}, at::kBFloat16)));
  EXPECT_TRUE(parameters[1].tensor.equal(at::full({2, 2}, 0.75, at::kBFloat16)));
  for (const auto& entry : optimizer->entries(true)) {
    EXPECT_TRUE(at::allclose(entry.master, at::full({2, 2}, 0.75))) << entry.path;
  }
}

}  // namespace
