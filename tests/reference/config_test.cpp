#include "reference/config.h"

#include "support/temporary_directory.h"

#include <ttrace/error.h>

#include <gmock/gmock.h>

#include <fstream>
#include <string>

namespace ttrace::testing {
namespace {

using reference::Config;
using reference::load_config;
using ::testing::HasSubstr;

constexpr const char* kGood = R"(model:
  layers: 2
  hidden: 128
  heads: 8
  query_groups: 4
  ffn: 256
  vocabulary: 257
  sequence: 64
  activation: swiglu
  tied: false
  rotary_base: 10000
  norm_epsilon: 1.0e-5
data:
  file: texts/text
  seed: 18446744073709551615
  micro_batch_size: 4
  micro_batches: 3
optimizer:
  learning_rate: 1.0e-3
  beta1: 0.9
  beta2: 0.95
  epsilon: 1.0e-8
  weight_decay: 0.1
  clip: 1.0
precision: bf16
)";

class ConfigFile : public ::testing::Test {
 protected:
  // kGood with `from` replaced by `to`.
  [[nodiscard]] std::string with(const std::string& from, const std::string& to) const {
    std::string text = kGood;
    const auto at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    text.replace(at, from.size(), to);
    const std::string file = folder_ / "run.yaml";
    std::ofstream(file) << text;
    return file;
  }
  // The sentence with which kGood, so changed, is refused.
  [[nodiscard]] std::string refusal(const std::string& from, const std::string& to) const {
    try {
      (void)load_config(with(from, to));
    } catch (const UsageError& error) {
      return error.message();
    }
    return "accepted";
  }
  TemporaryDirectory folder_;
};

TEST_F(ConfigFile, IsReadInFull) {
  const Config config = load_config(with("", ""));
  EXPECT_EQ(config.model.layers, 2);
  EXPECT_EQ(config.model.hidden, 128);
  EXPECT_EQ(config.model.heads, 8);
  EXPECT_EQ(config.model.query_groups, 4);
  EXPECT_EQ(config.model.head_size(), 16);
  EXPECT_EQ(config.model.ffn, 256);
  EXPECT_EQ(config.model.vocabulary, 257);
  EXPECT_EQ(config.model.sequence, 64);
  EXPECT_EQ(config.model.activation, reference::Activation::kSwiglu);
  EXPECT_FALSE(config.model.tied);
  EXPECT_EQ(config.model.rotary_base, 10000);
  EXPECT_EQ(config.model.norm_epsilon, 1e-5);
  EXPECT_EQ(config.data.file, folder_ / "texts/text");
  EXPECT_EQ(config.data.seed, ~std::uint64_t{0});
  EXPECT_EQ(config.data.micro_batch_size, 4);
  EXPECT_EQ(config.data.micro_batches, 3);
  EXPECT_EQ(config.optimizer.learning_rate, 1e-3);
  EXPECT_EQ(config.optimizer.beta1, 0.9);
  EXPECT_EQ(config.optimizer.beta2, 0.95);
  EXPECT_EQ(config.optimizer.epsilon, 1e-8);
  EXPECT_EQ(config.optimizer.weight_decay, 0.1);
  EXPECT_EQ(config.optimizer.clip, 1.0);
  EXPECT_EQ(config.precision, reference::Precision::kBf16);
}

TEST_F(ConfigFile, ChoicesHaveDefaults) {
  EXPECT_EQ(load_config(with("", "")).data.documents, reference::Documents::kSingle);
  EXPECT_EQ(load_config(with("", "")).data.masked, reference::Masked::kNone);
  EXPECT_EQ(load_config(with("", "")).loss, reference::Loss::kMean);
  EXPECT_EQ(
      load_config(with("  micro_batches: 3", "  micro_batches: 3\n  masked: prompt")).data.masked,
      reference::Masked::kPrompt);
  EXPECT_EQ(load_config(with("precision: bf16", "precision: bf16\nloss: per_token")).loss,
            reference::Loss::kPerToken);
  EXPECT_THAT(refusal("precision: bf16", "precision: bf16\nloss: sum"),
              HasSubstr("run.yaml:26: loss is 'sum'; use mean or per_token"));
  EXPECT_EQ(load_config(with("  seed:", "  documents: packed\n  seed:")).data.documents,
            reference::Documents::kPacked);
  EXPECT_THAT(refusal("  seed:", "  masked: all\n  seed:"),
              HasSubstr("data.masked is 'all'; use none or prompt"));
}

TEST_F(ConfigFile, UnknownKeyIsNamedWithItsLine) {
  EXPECT_THAT(refusal("  ffn: 256", "  ffn: 256\n  droput: 0.1"),
              HasSubstr("run.yaml:7: unknown key 'model.droput'"));
  EXPECT_THAT(refusal("precision:", "precison: f32\nprecision:"),
              HasSubstr("unknown key 'precison'"));
}

TEST_F(ConfigFile, MissingKeyIsNamed) {
  EXPECT_THAT(refusal("  clip: 1.0\n", ""), HasSubstr("'optimizer.clip' is missing"));
  EXPECT_THAT(refusal("data:", "datum:"), HasSubstr("'data' is missing"));
}

TEST_F(ConfigFile, ValueOfTheWrongTypeIsQuotedWithItsLine) {
  EXPECT_THAT(refusal("layers: 2", "layers: two"),
              HasSubstr("run.yaml:2: model.layers has a value of the wrong type: two"));
  EXPECT_THAT(refusal("precision: bf16", "precision: [bf16]"),
              HasSubstr("precision has a value of the wrong type: not a single value"));
}

TEST_F(ConfigFile, SectionThatIsNoMapIsNamed) {
  EXPECT_THAT(refusal("model:\n  layers: 2\n", "model: 3\nrest:\n"),
              HasSubstr("'model' must be a map"));
}

TEST_F(ConfigFile, HeadsThatDoNotDivideAreRefusedWithBothNumbers) {
  EXPECT_THAT(refusal("query_groups: 4", "query_groups: 3"),
              HasSubstr("model.heads 8 is not divisible by model.query_groups 3"));
  EXPECT_THAT(refusal("hidden: 128", "hidden: 132"),
              HasSubstr("model.hidden 132 is not divisible by model.heads 8"));
  EXPECT_THAT(refusal("hidden: 128", "hidden: 120"), HasSubstr("the head size 15"));
}

TEST_F(ConfigFile, ImpossibleValuesAreRefused) {
  EXPECT_THAT(refusal("layers: 2", "layers: 0"), HasSubstr("model.layers is 0"));
  EXPECT_THAT(refusal("heads: 8", "heads: -8"), HasSubstr("model.heads is -8"));
  EXPECT_THAT(refusal("vocabulary: 257", "vocabulary: 256"), HasSubstr("at least 257"));
  EXPECT_THAT(refusal("micro_batches: 3", "micro_batches: 0"),
              HasSubstr("data.micro_batches is 0"));
  EXPECT_THAT(refusal("beta2: 0.95", "beta2: 1"), HasSubstr("both must lie in [0, 1)"));
  EXPECT_THAT(refusal("sequence: 64\n  activation: swiglu\n  tied: false\n  rotary_base: 10000\n"
                      "  norm_epsilon: 1.0e-5\ndata:\n",
                      "sequence: 3\n  activation: swiglu\n  tied: false\n  rotary_base: 10000\n"
                      "  norm_epsilon: 1.0e-5\ndata:\n  documents: packed\n"),
              HasSubstr("model.sequence is 3; with packed documents it must be at least 4"));
  EXPECT_THAT(refusal("clip: 1.0", "clip: 0"), HasSubstr("optimizer.clip is 0"));
  EXPECT_THAT(refusal("activation: swiglu", "activation: relu"), HasSubstr("use gelu or swiglu"));
  EXPECT_THAT(refusal("precision: bf16", "precision: f16"),
              HasSubstr("use f64, f32, bf16, fp8 or fp8_f32"));
  EXPECT_THAT(refusal("precision: bf16", "precision: fp8\nfp8: {history: 0}"),
              HasSubstr("fp8.history is 0"));
  EXPECT_THAT(refusal("precision: bf16", "precision: fp8\nfp8: {bf16_ends: -1}"),
              HasSubstr("fp8.bf16_ends is -1"));
  EXPECT_THAT(refusal("precision: bf16", "precision: fp8\nfp8: {recipe: rowwise}"),
              HasSubstr("use delayed or current or blockwise or mxfp8"));
}

TEST_F(ConfigFile, MissingFileIsNamed) {
  try {
    (void)load_config(folder_ / "absent.yaml");
    FAIL() << "accepted";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.message(),
                HasSubstr("cannot read the configuration " + (folder_ / "absent.yaml")));
  }
}

TEST_F(ConfigFile, TextThatIsNotYamlIsRefused) {
  EXPECT_THAT(refusal("model:", "model: ["), HasSubstr("is not valid YAML"));
}

}  // namespace
}  // namespace ttrace::testing
