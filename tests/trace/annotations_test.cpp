#include "support/temporary_directory.h"

#include <ttrace/annotations.h>
#include <ttrace/error.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace ttrace {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

using Shape = std::vector<std::int64_t>;

constexpr const char* kText = R"(sizes: {v: 257}
tensors:
  - path: embedding.word_embeddings.weight
    value: "v[tp] h"
  - path: decoder.layers.*.self_attention.core_attention
    value: ["s b a[tp]", "s"]
    grad: "s b a[tp:partial]"
    inputs: ["s b n[tp] d", "s b g[tp] d"]
    scales: ["s b k", "r k[tp]"]
    operands: ["s b a", "a h[tp]"]
  - path: decoder.layers.*.mlp
    inputs: "s b h"
    input_grads: "s b h[tp:partial]"
  - path: decoder.layers.*.mlp.router
    value: "s b e"
    routing: ["s[sp] b k", "s[sp] b"]
  - path: decoder.**
    value: "s[sp] b h"
  - path: decoder.final_layernorm
    value: "never reached"
)";

std::string found(const Annotations& annotations,
                  Kind kind,
                  const std::string& path,
                  int slot = 0) {
  const std::optional<DimsSpec> dims = annotations.find(kind, path, slot);
  return dims ? to_string(*dims) : "whole";
}

std::string usage_error(const std::string& text) {
  try {
    (void)Annotations::parse(text, "gpt.ttrace.yaml");
  } catch (const UsageError& error) {
    return error.message();
  }
  ADD_FAILURE() << "accepted: " << text;
  return "";
}

TEST(Annotations, PatternsMatchWholeParts) {
  EXPECT_TRUE(path_matches("a.b", "a.b"));
  EXPECT_TRUE(path_matches("a.*.c", "a.b.c"));
  EXPECT_TRUE(path_matches("a.**", "a.b.c"));
  EXPECT_TRUE(path_matches("a.**", "a"));
  EXPECT_TRUE(path_matches("**", "a.b"));
  EXPECT_TRUE(path_matches("**.c", "c"));
  EXPECT_TRUE(path_matches("**.c", "a.b.c"));
  EXPECT_TRUE(path_matches("a.**.c.**.e", "a.c.c.d.e"));
  EXPECT_FALSE(path_matches("a.b", "a.b.c"));
  EXPECT_FALSE(path_matches("a.b.c", "a.b"));
  EXPECT_FALSE(path_matches("a.*", "a"));
  EXPECT_FALSE(path_matches("a.*", "a.b.c"));
  EXPECT_FALSE(path_matches("*", "a.b"));
  EXPECT_FALSE(path_matches("**.c", "a.bc"));
  EXPECT_FALSE(path_matches("a.**.c.**.e", "a.c.d"));
}

TEST(Annotations, WhatAProgramDerivesHoldsWhereNoEntryRules) {
  Annotations annotations = Annotations::parse(kText);
  annotations.derive("decoder.layers.1.mlp", "inputs", 0, "never reached")
      .derive("head", "value", 1, "s b[dp] v")
      .derive("head", "grad", 1, "s b[dp] v[tp:partial]")
      .derive("head", "routing", 0, "s b k");
  EXPECT_EQ(found(annotations, Kind::kInput, "decoder.layers.1.mlp"), "s b h");
  EXPECT_EQ(found(annotations, Kind::kOutput, "head", 1), "s b[dp] v");
  EXPECT_EQ(found(annotations, Kind::kGradOutput, "head", 1), "s b[dp] v[tp:partial]");
  EXPECT_EQ(found(annotations, Kind::kRouting, "head"), "s b k");
  EXPECT_EQ(found(annotations, Kind::kOutput, "head"), "whole");
  annotations.derive("head", "value", 1, "s b v");
  EXPECT_EQ(found(annotations, Kind::kOutput, "head", 1), "s b v");
}

// Symptom: a model had a parameter `tokens` and an argument `tokens`, and the parameter's gradient
// was cut as the argument's samples are.
TEST(Annotations, AnInputOfTheStepLiesApartFromAParameterOfItsName) {
  Annotations annotations = Annotations::parse(kText);
  annotations.derive("tokens", "value", 0, "v h").derive("tokens", "data", 0, "b[dp] s");
  EXPECT_EQ(found(annotations, Kind::kData, "tokens"), "b[dp] s");
  EXPECT_EQ(found(annotations, Kind::kParam, "tokens"), "v h");
  EXPECT_EQ(found(Annotations().derive("ids", "value", 0, "b s"), Kind::kData, "ids"), "b s");
}

TEST(Annotations, RolesOfTheFileRuleThoseOfTheProgram) {
  Annotations annotations =
      Annotations::parse("roles:\n  attention: [h.*.attn, h.*.attn.*]\n  context_parallel: ring\n");
  annotations.role("attention", "other").role("tokens", "input_ids");
  const std::map<std::string, std::string> expected = {
      {"attention", "h.*.attn h.*.attn.*"}, {"context_parallel", "ring"}, {"tokens", "input_ids"}};
  EXPECT_EQ(annotations.roles(), expected);
}

TEST(Annotations, RolesThatMeanNothingAreNamed) {
  const auto message = [](const std::string& text) {
    try {
      static_cast<void>(Annotations::parse(text, "gpt.yaml"));
    } catch (const UsageError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(message("roles:\n  attentoin: a\n"),
              HasSubstr("gpt.yaml:2: \"attentoin\" is not a role; the roles are attention, "));
  EXPECT_THAT(message("roles: {layers: ''}\n"), HasSubstr("the role layers has no pattern"));
  EXPECT_THAT(message("roles: {layers: [{a: b}]}\n"), HasSubstr("a pattern of names"));
  EXPECT_THAT(message("roles: {layers: {a: b}}\n"), HasSubstr("or a list of them"));
}

TEST(Annotations, WhatCannotBeDerivedIsNamed) {
  const auto message = [](const std::string& path, const std::string& field, int slot) {
    Annotations annotations;
    try {
      annotations.derive(path, field, slot, "s b");
    } catch (const UsageError& error) {
      return error.message();
    }
    ADD_FAILURE() << "derived " << field << " of " << path;
    return std::string();
  };
  EXPECT_THAT(message("head", "values", 0), HasSubstr("\"values\" of \"head\", slot 0"));
  EXPECT_THAT(message("head/1", "value", 0), HasSubstr("\"value\" of \"head/1\""));
  EXPECT_THAT(message("head", "value", -1), HasSubstr("slot -1"));
  EXPECT_THROW(Annotations().derive("head", "value", 0, "s[tp"), UsageError);
}

TEST(Annotations, ScalesHaveDimsOfTheirOwnAndHistoriesAreWhole) {
  const Annotations annotations = Annotations::parse(kText);
  const std::string path = "decoder.layers.1.self_attention.core_attention";
  EXPECT_EQ(found(annotations, Kind::kScale, path, 0), "s b k");
  EXPECT_EQ(found(annotations, Kind::kScale, path, 1), "r k[tp]");
  EXPECT_EQ(found(annotations, Kind::kScale, path, 2), "whole");
  EXPECT_EQ(found(annotations, Kind::kScale, "decoder.layers.1.mlp"), "whole");
  EXPECT_EQ(found(annotations, Kind::kAmaxHistory, path), "whole");
}

TEST(Annotations, OperandsHaveDimsOfTheirOwnWhereGiven) {
  const Annotations annotations = Annotations::parse(kText);
  const std::string path = "decoder.layers.1.self_attention.core_attention";
  EXPECT_EQ(found(annotations, Kind::kOperand, path, 0), "s b a");
  EXPECT_EQ(found(annotations, Kind::kOperand, path, 1), "a h[tp]");
}

TEST(Annotations, OperandsAreElsePlacedAsWhatWasQuantised) {
  const Annotations annotations = Annotations::parse(R"(tensors:
  - path: fc.weight
    value: "q[tp] h"
    grad: "q[tp] h[cp:partial]"
  - path: fc
    value: "s b q[tp]"
    inputs: "s[sp] b h"
  - path: add
    value: "s b h"
    grad: "s b h[tp:partial]"
)");
  EXPECT_EQ(found(annotations, Kind::kOperand, "fc", 0), "s[sp] b h");
  EXPECT_EQ(found(annotations, Kind::kOperand, "fc", 1), "q[tp] h");
  EXPECT_EQ(found(annotations, Kind::kOperand, "fc", 2), "s b q[tp]");
  EXPECT_EQ(found(annotations, Kind::kOperand, "add", 1), "whole");
  EXPECT_EQ(found(annotations, Kind::kOperand, "add", 2), "s b h[tp:partial]");
}

TEST(Annotations, AScaleWithoutDimensionsIsOfTheWholeTensor) {
  const Annotations annotations = Annotations::parse(kText);
  const std::string path = "decoder.layers.1.self_attention.core_attention";
  EXPECT_EQ(annotations.placement(Kind::kScale, path, 0, Shape{}, Layout{}), whole(Shape{}));
}

TEST(Annotations, EveryKindTakesTheDimsMadeForIt) {
  const Annotations annotations = Annotations::parse(kText);
  const std::string weight = "embedding.word_embeddings.weight";
  for (const Kind kind : {Kind::kParam,
                          Kind::kParamGrad,
                          Kind::kMainGrad,
                          Kind::kMaster,
                          Kind::kParamNext,
                          Kind::kExpAvg,
                          Kind::kExpAvgSq}) {
    EXPECT_EQ(found(annotations, kind, weight), "v[tp] h") << name_of(kind);
  }
  const std::string attention = "decoder.layers.3.self_attention.core_attention";
  EXPECT_EQ(found(annotations, Kind::kOutput, attention), "s b a[tp]");
  EXPECT_EQ(found(annotations, Kind::kOutput, attention, 1), "s");
  EXPECT_EQ(found(annotations, Kind::kOutput, attention, 2), "whole");
  EXPECT_EQ(found(annotations, Kind::kGradOutput, attention), "s b a[tp:partial]");
  EXPECT_EQ(found(annotations, Kind::kParamGrad, attention), "s b a[tp:partial]");
  EXPECT_EQ(found(annotations, Kind::kMainGrad, attention), "s b a[tp]");
  EXPECT_EQ(found(annotations, Kind::kInput, attention, 1), "s b g[tp] d");
  EXPECT_EQ(found(annotations, Kind::kGradInput, attention, 1), "s b g[tp] d");
  EXPECT_EQ(found(annotations, Kind::kScalar, attention), "whole");
  EXPECT_EQ(found(annotations, Kind::kDraw, attention), "s b a[tp]");
}

TEST(Annotations, InputGradientsHaveDimsOfTheirOwnWhereGiven) {
  const Annotations annotations = Annotations::parse(kText);
  EXPECT_EQ(found(annotations, Kind::kInput, "decoder.layers.0.mlp"), "s b h");
  EXPECT_EQ(found(annotations, Kind::kGradInput, "decoder.layers.0.mlp"), "s b h[tp:partial]");
  const std::string router = "decoder.layers.0.mlp.router";
  EXPECT_EQ(found(annotations, Kind::kOutput, router), "s b e");
  EXPECT_EQ(found(annotations, Kind::kRouting, router, 0), "s[sp] b k");
  EXPECT_EQ(found(annotations, Kind::kRouting, router, 1), "s[sp] b");
}

TEST(Annotations, AStringIsSlotZeroOnlyAlsoForGradients) {
  const Annotations annotations = Annotations::parse(kText);
  EXPECT_EQ(found(annotations, Kind::kInput, "decoder.layers.0.mlp", 1), "whole");
  EXPECT_EQ(
      found(annotations, Kind::kGradOutput, "decoder.layers.3.self_attention.core_attention", 1),
      "whole");
}

TEST(Annotations, TransfersHaveTheDimsOfTheFirstOutputAndItsGradient) {
  const Annotations annotations = Annotations::parse(kText);
  const std::string attention = "decoder.layers.3.self_attention.core_attention";
  for (const Kind kind : {Kind::kSent, Kind::kReceived}) {
    EXPECT_EQ(found(annotations, kind, attention, 0), "s b a[tp]");
    EXPECT_EQ(found(annotations, kind, attention, 1), "s b a[tp:partial]");
    EXPECT_EQ(found(annotations, kind, "decoder.final_layernorm", 1), "s[sp] b h");
  }
}

TEST(Annotations, TheFirstMatchingEntryDecides) {
  const Annotations annotations = Annotations::parse(kText);
  EXPECT_EQ(found(annotations, Kind::kOutput, "decoder.layers.0.mlp"), "whole");
  EXPECT_EQ(found(annotations, Kind::kOutput, "decoder.final_layernorm"), "s[sp] b h");
  EXPECT_EQ(found(annotations, Kind::kOutput, "output_layer"), "whole");
}

TEST(Annotations, AnAxisCanBeLeftOutForSomePaths) {
  Annotations annotations = Annotations::parse(kText);
  annotations.without("tp", "decoder.layers.3.**");
  EXPECT_EQ(found(annotations, Kind::kGradInput, "decoder.layers.0.mlp"), "s b h[tp:partial]");
  EXPECT_EQ(found(annotations, Kind::kGradInput, "decoder.layers.3.mlp"), "s b h");
  EXPECT_THROW(annotations.without("tp", "decoder..x"), UsageError);
  EXPECT_THROW(annotations.without("", "decoder"), UsageError);
}

TEST(Annotations, AnotherAxisCanBeUsedForSomePaths) {
  Annotations annotations = Annotations::parse(kText);
  annotations.instead("tp", "tp2", "decoder.layers.3.**");
  EXPECT_EQ(found(annotations, Kind::kGradInput, "decoder.layers.0.mlp"), "s b h[tp:partial]");
  EXPECT_EQ(found(annotations, Kind::kGradInput, "decoder.layers.3.mlp"), "s b h[tp2:partial]");
  EXPECT_THROW(annotations.instead("tp", "tp2", "decoder..x"), UsageError);
  EXPECT_THROW(annotations.instead("tp", "", "decoder.layers.3.**"), UsageError);
}

TEST(Annotations, PlacementUsesTheSizesOfTheFileAndOfTheProgram) {
  Annotations annotations = Annotations::parse(kText);
  const Layout layout = Layout{}.add("tp", 2, 1);
  const auto weight = [&] {
    return to_string(annotations.placement(
        Kind::kParam, "embedding.word_embeddings.weight", 0, Shape{192, 4}, layout));
  };
  EXPECT_EQ(weight(), "257/192:0+192+65 4");
  annotations.size("v", 300).size("x", 1);
  EXPECT_EQ(weight(), "300/192:0+192+108 4");
  EXPECT_THROW(annotations.size("v", 0), UsageError);
}

TEST(Annotations, WhatNoEntryMatchesIsWhole) {
  const Placement placement =
      Annotations().placement(Kind::kOutput, "x", 0, Shape{2, 3}, Layout{}.add("tp", 2, 1));
  EXPECT_EQ(placement, whole(Shape{2, 3}));
}

TEST(Annotations, PlacementErrorsNamePathAndKind) {
  const Annotations annotations = Annotations::parse(kText);
  try {
    (void)annotations.placement(
        Kind::kMainGrad, "embedding.word_embeddings.weight", 0, Shape{5}, Layout{});
    FAIL() << "accepted";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.message(), HasSubstr("embedding.word_embeddings.weight (main_grad, slot 0)"));
    EXPECT_THAT(error.message(), HasSubstr("\"v[tp] h\""));
  }
}

TEST(Annotations, AnEmptyFileSaysNothing) {
  EXPECT_EQ(found(Annotations::parse(""), Kind::kOutput, "a"), "whole");
  EXPECT_EQ(found(Annotations::parse("# only a remark\n"), Kind::kOutput, "a"), "whole");
  EXPECT_EQ(found(Annotations::parse("tensors: []\nsizes: {}\n"), Kind::kOutput, "a"), "whole");
}

TEST(Annotations, MistakesAreReportedWithFileAndLine) {
  const std::vector<std::pair<std::string, std::string>> mistakes = {
      {"tensor: []\n", "gpt.ttrace.yaml:1: unknown key \"tensor\""},
      {"sizes: {v: 257}\nsizes: {}\n", "gpt.ttrace.yaml:2: the key \"sizes\" occurs twice"},
      {"sizes:\n  v: many\n", "gpt.ttrace.yaml:2: the size of \"v\" must be a number"},
      {"sizes:\n  v: 0\n", "gpt.ttrace.yaml:2: the size of \"v\" must be at least 1"},
      {"sizes: 3\n", "gpt.ttrace.yaml:1: `key: value` pairs are expected"},
      {"- path: a\n", "gpt.ttrace.yaml:1: `key: value` pairs are expected"},
      {"tensors:\n  path: a\n", "gpt.ttrace.yaml:2: tensors must be a list"},
      {"tensors:\n  - path: a\n    values: s\n", "gpt.ttrace.yaml:3: unknown key \"values\""},
      {"tensors:\n  - value: s\n", "gpt.ttrace.yaml:2: an entry of tensors needs a path"},
      {"tensors:\n  - path: a.b*\n", "gpt.ttrace.yaml:2: a path must consist of parts"},
      {"tensors:\n  - path: a..b\n", "gpt.ttrace.yaml:2: a path must consist of parts"},
      {"tensors:\n  - path: [a]\n", "gpt.ttrace.yaml:2: a path must consist of parts"},
      {"tensors:\n  - path: a\n    value: \"s b[\"\n", "gpt.ttrace.yaml:3: dims \"s b[\""},
      {"tensors:\n  - path: a\n    inputs: [s,\n      \"h]\"]\n", "gpt.ttrace.yaml:4: dims \"h]\""},
      {"tensors:\n  - path: a\n    value: {s: 1}\n", "gpt.ttrace.yaml:3: dims such as"},
      {"tensors:\n  - path: a\n    value: []\n", "gpt.ttrace.yaml:3: the list needs at least one"},
      {"tensors:\n  - path: a\n  value: [\n", "gpt.ttrace.yaml:"},
  };
  for (const auto& [text, message] : mistakes) {
    EXPECT_THAT(usage_error(text), StartsWith(message)) << text;
  }
}

TEST(Annotations, LoadsAFileAndNamesItInErrors) {
  const testing::TemporaryDirectory directory;
  const std::string good = directory / "good.yaml";
  const std::string bad = directory / "bad.yaml";
  std::ofstream(good) << kText;
  std::ofstream(bad) << "sizes: {}\nother: 1\n";
  EXPECT_EQ(Annotations::load(good).sizes().at("v"), 257);
  for (const auto& [file, message] :
       std::vector<std::pair<std::string, std::string>>{{bad, bad + ":2: "},
                                                        {directory / "absent.yaml", "absent.yaml"},
                                                        {directory.path(), "cannot read"}}) {
    try {
      (void)Annotations::load(file);
      ADD_FAILURE() << "accepted " << file;
    } catch (const UsageError& error) {
      EXPECT_THAT(error.message(), HasSubstr(message));
    }
  }
}

}  // namespace
}  // namespace ttrace
