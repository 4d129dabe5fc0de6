#include "fuzz_layouts/case.h"

#include <ttrace/error.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <initializer_list>
#include <sstream>

namespace ttrace::fuzz_layouts {
namespace {

constexpr int kMostRanks = 8;
constexpr int kFull = 1;       // Case::recompute
constexpr int kBlockwise = 2;  // Case::recipe
constexpr int kMxfp8 = 3;

// Simple ones first: shrinking goes down the table and takes the first value that still fails.
std::vector<Field> make_fields() {
  constexpr bool kAxis = true;
  constexpr bool kOptional = true;
  return {
      {"recompute", &Case::recompute, 0, {2, 1}, false, kOptional},
      {"recompute_layers", &Case::recompute_layers, 1, {2}, false, kOptional},
      {"overlap_gather", &Case::overlap_gather, 0, {1}, false, kOptional},
      {"zero1", &Case::zero1, 0, {1}, false, kOptional},
      {"dropout", &Case::dropout, 0, {10, 30}, false, kOptional},
      {"attention_dropout", &Case::attention_dropout, 0, {10, 30}, false, kOptional},
      {"label_smoothing", &Case::label_smoothing, 0, {10}, false, kOptional},
      {"frozen", &Case::frozen, 0, {1, 2, 3, 4, 5}, false, kOptional},
      {"layer_dp", &Case::layer_dp, 0, {1, 2}, false, false, true},
      {"layer_tp", &Case::layer_tp, 0, {1, 2, 3, 4, 5}, false, kOptional},
      {"packed", &Case::packed, 0, {1}, false, kOptional},
      {"masked", &Case::masked, 0, {1}, false, kOptional},
      {"per_token", &Case::per_token, 0, {1}, false, kOptional},
      {"tied", &Case::tied, 0, {1}, false, kOptional},
      {"expert_bias", &Case::expert_bias, 0, {1}, false, kOptional},
      {"z_loss", &Case::z_loss, 0, {1}, false, kOptional},
      {"aux_loss", &Case::aux_loss, 0, {1}, false, kOptional},
      {"shared_expert", &Case::shared_expert, 0, {24, 40}, false, kOptional},
      {"etp", &Case::etp, 0, {1, 2, 4}, false, kOptional},
      {"ep", &Case::ep, 1, {2, 3, 4}, false, kOptional},
      {"top_k", &Case::top_k, 1, {2, 3}, false, kOptional},
      {"experts", &Case::experts, 1, {2, 3, 4, 6, 8}, false, kOptional},
      {"bf16_ends", &Case::bf16_ends, 0, {1}, false, kOptional},
      {"recipe", &Case::recipe, 0, {1, 2, 3}, false, false},
      {"history", &Case::history, 1, {2, 4}, false, false},
      {"first_stage", &Case::first_stage, 0, {1, 2, 3}, false, kOptional},
      {"last_stage", &Case::last_stage, 0, {1, 2, 3}, false, kOptional},
      {"vpp", &Case::vpp, 1, {2}, false, kOptional},
      {"pp", &Case::pp, 1, {2, 3, 4}, kAxis, kOptional},
      {"sp", &Case::sp, 0, {1}, false, false},
      {"cp", &Case::cp, 1, {2, 3, 4}, kAxis, kOptional},
      {"dp", &Case::dp, 1, {2, 3, 4}, kAxis, kOptional},
      {"tp", &Case::tp, 1, {2, 3, 4, 8}, kAxis, kOptional},
      {"steps", &Case::steps, 1, {2}, false, kOptional},
      {"layers", &Case::layers, 1, {2, 3, 4, 5, 6}},
      {"micro_batches", &Case::micro_batches, 1, {2, 3, 4, 6, 8}},
      {"batch", &Case::batch, 1, {2, 3, 4}},
      {"swiglu", &Case::swiglu, 0, {1}},
      {"sequence", &Case::sequence, 16, {20, 24, 32, 36, 48, 60, 64}},
      {"vocabulary", &Case::vocabulary, 257, {258, 259, 263, 271, 288}},
      {"ffn", &Case::ffn, 32, {36, 45, 48, 64, 75, 96, 128}},
      {"heads", &Case::heads, 2, {3, 4, 6, 8, 12}},
      {"groups", &Case::groups, 1, {2, 3, 4, 6, 8, 12}},
      {"head_size", &Case::head_size, 8, {6, 10, 12, 16, 32}},
  };
}

std::vector<Feature> make_features() {
  return {
      {"tp", [](const Case& c) { return c.tp > 1; }},
      {"tp 3", [](const Case& c) { return c.tp == 3; }},
      {"tp 4 and more", [](const Case& c) { return c.tp >= 4; }},
      {"sp", [](const Case& c) { return c.sp != 0; }},
      {"cp", [](const Case& c) { return c.cp > 1; }},
      {"cp 3", [](const Case& c) { return c.cp == 3; }},
      {"dp", [](const Case& c) { return c.dp > 1; }},
      {"tp sp cp dp", [](const Case& c) { return c.sp != 0 && c.cp > 1 && c.dp > 1; }},
      {"8 ranks", [](const Case& c) { return c.ranks() == kMostRanks; }},
      {"pp", [](const Case& c) { return c.pp > 1; }},
      {"vpp", [](const Case& c) { return c.vpp > 1; }},
      {"uneven stages", [](const Case& c) { return c.first_stage + c.last_stage > 0; }},
      {"tied across stages", [](const Case& c) { return c.tied != 0 && c.pp > 1; }},
      {"experts", [](const Case& c) { return c.experts > 1; }, Where::kNotFp8},
      {"top 2 and more", [](const Case& c) { return c.top_k > 1; }, Where::kNotFp8},
      {"ep", [](const Case& c) { return c.ep > 1; }, Where::kNotFp8},
      {"etp unlike tp", [](const Case& c) { return c.etp != 0 && c.etp != c.tp; }, Where::kNotFp8},
      {"shared expert", [](const Case& c) { return c.shared_expert != 0; }, Where::kNotFp8},
      {"aux loss", [](const Case& c) { return c.aux_loss != 0; }, Where::kNotFp8},
      {"z loss", [](const Case& c) { return c.z_loss != 0; }, Where::kNotFp8},
      {"expert bias", [](const Case& c) { return c.expert_bias != 0; }, Where::kNotFp8},
      {"zero1", [](const Case& c) { return c.zero1 != 0; }},
      {"overlap gather", [](const Case& c) { return c.overlap_gather != 0; }},
      {"recompute full", [](const Case& c) { return c.recompute == 1; }},
      {"recompute 2 layers", [](const Case& c) { return c.recompute_layers == 2; }},
      {"recompute selective", [](const Case& c) { return c.recompute == 2; }},
      {"dropout", [](const Case& c) { return c.dropout != 0; }},
      {"attention dropout", [](const Case& c) { return c.attention_dropout != 0; }},
      {"label smoothing", [](const Case& c) { return c.label_smoothing != 0; }},
      {"frozen layers", [](const Case& c) { return c.frozen != 0; }},
      {"layers of TP 1", [](const Case& c) { return c.layer_tp != 0; }},
      {"grouped queries", [](const Case& c) { return c.groups < c.heads; }},
      {"fewer groups than tp", [](const Case& c) { return c.groups < c.tp; }},
      {"vocabulary not divisible by tp", [](const Case& c) { return c.vocabulary % c.tp != 0; }},
      {"tied", [](const Case& c) { return c.tied != 0; }},
      {"packed", [](const Case& c) { return c.packed != 0; }},
      {"packed under cp", [](const Case& c) { return c.packed != 0 && c.cp > 1; }},
      {"masked", [](const Case& c) { return c.masked != 0; }},
      {"masked, loss per token, dp",
       [](const Case& c) { return c.masked != 0 && c.per_token != 0 && c.dp > 1; }},
      {"loss per token", [](const Case& c) { return c.per_token != 0; }},
      {"two steps", [](const Case& c) { return c.steps > 1; }},
      {"masked under cp", [](const Case& c) { return c.masked != 0 && c.cp > 1; }},
      {"cp under pp", [](const Case& c) { return c.cp > 1 && c.pp > 1; }},
      {"zero1 under pp", [](const Case& c) { return c.zero1 != 0 && c.pp > 1; }},
      {"zero1 under vpp", [](const Case& c) { return c.zero1 != 0 && c.vpp > 1; }},
      {"recompute under vpp", [](const Case& c) { return c.recompute != 0 && c.vpp > 1; }},
      {"recompute and zero1", [](const Case& c) { return c.recompute != 0 && c.zero1 != 0; }},
      {"frozen layers under pp", [](const Case& c) { return c.frozen != 0 && c.pp > 1; }},
      {"frozen layers and zero1", [](const Case& c) { return c.frozen != 0 && c.zero1 != 0; }},
      {"layers of TP 1 under pp", [](const Case& c) { return c.layer_tp != 0 && c.pp > 1; }},
      {"layers of TP 1 and zero1", [](const Case& c) { return c.layer_tp != 0 && c.zero1 != 0; }},
      {"dropout under vpp", [](const Case& c) { return c.dropout != 0 && c.vpp > 1; }},
      {"experts under vpp",
       [](const Case& c) { return c.experts > 1 && c.vpp > 1; },
       Where::kNotFp8},
      {"experts, recompute",
       [](const Case& c) { return c.experts > 1 && c.recompute != 0; },
       Where::kNotFp8},
      {"experts, frozen layers",
       [](const Case& c) { return c.experts > 1 && c.frozen != 0; },
       Where::kNotFp8},
      {"experts, layers of TP 1",
       [](const Case& c) { return c.experts > 1 && c.layer_tp != 0; },
       Where::kNotFp8},
      {"ep under cp", [](const Case& c) { return c.ep > 1 && c.cp > 1; }, Where::kNotFp8},
      {"ep under pp", [](const Case& c) { return c.ep > 1 && c.pp > 1; }, Where::kNotFp8},
      {"ep and zero1", [](const Case& c) { return c.ep > 1 && c.zero1 != 0; }, Where::kNotFp8},
      {"etp unlike tp, under cp",
       [](const Case& c) { return c.etp != 0 && c.etp != c.tp && c.cp > 1; },
       Where::kNotFp8},
      {"gelu", [](const Case& c) { return c.swiglu == 0; }},
      {"swiglu", [](const Case& c) { return c.swiglu != 0; }},
      {"delayed scales", [](const Case& c) { return c.recipe == 0; }, Where::kFp8},
      {"history", [](const Case& c) { return c.history > 1 && c.steps > 1; }, Where::kFp8},
      {"current scales", [](const Case& c) { return c.recipe == 1; }, Where::kFp8},
      {"blockwise scales", [](const Case& c) { return c.recipe == kBlockwise; }, Where::kFp8},
      {"mxfp8", [](const Case& c) { return c.recipe == kMxfp8; }, Where::kFp8},
      {"mxfp8 under tp", [](const Case& c) { return c.recipe == kMxfp8 && c.tp > 1; }, Where::kFp8},
      {"ends in BF16", [](const Case& c) { return c.bf16_ends != 0; }, Where::kFp8},
  };
}

std::string flag(const char* name, int value, int absent) {
  return value == absent ? "" : std::string(" --") + name + " " + std::to_string(value);
}

// "0.1"
std::string percent(int value) {
  return value < 10 ? "0.0" + std::to_string(value) : "0." + std::to_string(value);
}

// Numbers of the bits that are set: "0, 2".
std::string layers_of(int bits) {
  std::string text;
  for (int layer = 0; bits >> layer != 0; ++layer) {
    if ((bits >> layer & 1) != 0) {
      text += (text.empty() ? "" : ", ") + std::to_string(layer);
    }
  }
  return text;
}

// TP degree of every layer: "2,1".
std::string degrees_of(const Case& c) {
  std::string text;
  for (int layer = 0; layer < c.layers; ++layer) {
    const int degree = (c.layer_tp >> layer & 1) != 0 ? c.smaller_degree() : c.tp;
    text += (text.empty() ? "" : ",") + std::to_string(degree);
  }
  return text;
}

// The first rule that a case breaks; `divides` says so in words.
class Rules {
 public:
  void need(bool holds, const char* rule) {
    if (!holds && broken_.empty()) {
      broken_ = rule;
    }
  }
  void divides(const char* divisor, int by, const char* name, int value) {
    // Asked for millions of cases: the sentence is made for the broken rule alone.
    if (broken_.empty() && (by <= 0 || value % by != 0)) {
      broken_ = std::string(divisor) + " " + std::to_string(by) + " does not divide " + name + " " +
                std::to_string(value);
    }
  }
  [[nodiscard]] const std::string& broken() const { return broken_; }

 private:
  std::string broken_;
};

void check_model(const Case& c, Rules& rules) {
  rules.divides("groups", c.groups, "heads", c.heads);
  rules.divides("2", 2, "head_size", c.head_size);
  rules.need(c.hidden() <= 128, "hidden above 128 takes too long");
  rules.need(c.layers * c.micro_batches * c.batch * c.steps <= 100,
             "layers * micro_batches * batch * steps above 100 takes too long");
  rules.need(c.recompute_layers <= c.layers, "recompute_layers above layers");
  rules.need(c.experts == 1 || c.precision != "fp8", "fp8 with experts is not implemented");
  rules.need(c.vocabulary >= 257, "a vocabulary has 256 bytes and a beginning");
}

void check_layout(const Case& c, Rules& rules) {
  rules.need(c.ranks() <= kMostRanks, "more ranks than 8");
  rules.divides("tp", c.tp, "heads", c.heads);
  rules.need(c.groups % c.tp == 0 || c.tp % c.groups == 0,
             "neither of tp and groups divides the other");
  rules.divides("tp", c.tp, "rows of linear_qkv", (c.heads + 2 * c.groups) * c.head_size);
  rules.divides("tp", c.tp, "ffn or shared_expert", c.experts > 1 ? c.shared_expert : c.ffn);
  rules.divides("dp", c.dp, "micro_batches", c.micro_batches);
  if (c.cp > 1) {
    rules.divides("2 * cp", 2 * c.cp, "sequence", c.sequence);
  }
  if (c.sp != 0) {
    rules.divides("tp", c.tp, "sequence / cp", c.sequence / c.cp);
  }
}

void check_stages(const Case& c, Rules& rules) {
  const int given = (c.first_stage > 0 ? 1 : 0) + (c.last_stage > 0 ? 1 : 0);
  const int others = c.pp - given;
  const int rest = c.layers - c.first_stage - c.last_stage;
  rules.need(rest >= 0 && (others > 0 || rest == 0), "the given stages have other layers in all");
  if (others > 0) {
    rules.need(rest > 0, "a stage without a layer");
    rules.divides("stages of no given size,", others, "the layers left,", rest);
    rules.divides("vpp", c.vpp, "layers of a stage", rest / others);
  }
  rules.need(others >= 0, "two stages of a given size, but one stage");
  rules.divides("vpp", c.vpp, "first_stage", c.first_stage);
  rules.divides("vpp", c.vpp, "last_stage", c.last_stage);
  if (c.vpp > 1) {
    rules.divides("pp", c.pp, "micro-batches of a rank", c.micro_batches / c.dp);
  }
}

// A rank must hold whole blocks that share a scale.
void check_blocks(const Case& c, Rules& rules) {
  if (c.tp > 1 && c.precision == "fp8" && c.recipe >= kBlockwise) {
    const int block = c.recipe == kBlockwise ? 128 : 32;
    rules.divides(
        "a block of", block, "hidden / tp", c.hidden() % c.tp == 0 ? c.hidden() / c.tp : 1);
    rules.divides("a block of", block, "ffn / tp", c.ffn / c.tp);
    rules.divides("a block of",
                  block,
                  "rows of linear_qkv / tp",
                  (c.heads + 2 * c.groups) * c.head_size / c.tp);
  }
}

// Layers that divide the ranks in a way of their own.
void check_layers(const Case& c, Rules& rules) {
  if (c.layer_dp == 0) {
    return;
  }
  const int degree = c.smaller_degree();
  rules.need(c.layer_tp != 0, "layer_dp without layer_tp");
  rules.need(c.experts == 1, "layer_dp with experts is not implemented");
  rules.divides("ranks that layer_dp has for the samples,", c.tp / degree, "batch", c.batch);
  rules.need(c.groups % degree == 0 || degree % c.groups == 0,
             "neither of a layer's degree and groups divides the other");
  // The last layer of a stage has the degree of the others.
  const int stages = c.pp * c.vpp;
  const bool equal = c.first_stage == 0 && c.last_stage == 0 && c.layers % stages == 0;
  rules.need(stages == 1 || equal, "layer_dp with stages of a given size");
  for (int stage = 1; equal && stage < stages; ++stage) {
    const int last = stage * c.layers / stages - 1;
    rules.need((c.layer_tp >> last & 1) == 0, "the last layer of a stage has a smaller degree");
  }
}

void check_experts(const Case& c, Rules& rules) {
  const int etp = c.etp == 0 ? c.tp : c.etp;
  rules.need(c.top_k <= c.experts, "top_k above experts");
  rules.need(etp == c.tp || c.sp != 0, "etp unlike tp needs sp");
  rules.divides("ep", c.ep, "experts", c.experts);
  rules.divides("etp * ep", etp * c.ep, "tp * cp * dp", c.tp * c.cp * c.dp);
  rules.divides("etp", etp, "ffn", c.ffn);
}

}  // namespace

std::span<const Field> fields() {
  static const std::vector<Field> kFields = make_fields();
  return kFields;
}

std::span<const Feature> features() {
  static const std::vector<Feature> kFeatures = make_features();
  return kFeatures;
}

std::string text_of(const Case& layout) {
  std::string text = "precision=" + layout.precision + " seed=" + std::to_string(layout.seed);
  for (const Field& field : fields()) {
    if (layout.*field.value != field.simplest) {
      text += " " + std::string(field.name) + "=" + std::to_string(layout.*field.value);
    }
  }
  return text;
}

Case case_of(const std::string& text) {
  Case layout;
  for (const Field& field : fields()) {
    layout.*field.value = field.simplest;
  }
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    const std::size_t sign = std::min(word.find('='), word.size());
    const std::string name = word.substr(0, sign);
    const std::string value = word.substr(std::min(sign + 1, word.size()));
    if (name == "precision") {
      layout.precision = value;
      continue;
    }
    const auto field = std::find_if(
        fields().begin(), fields().end(), [&](const Field& f) { return f.name == name; });
    TTRACE_CHECK(name == "seed" || field != fields().end(),
                 UsageError,
                 "'",
                 word,
                 "' names no field of a case");
    int& target = name == "seed" ? layout.seed : layout.*field->value;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), target);
    TTRACE_CHECK(error == std::errc{} && end == value.data() + value.size(),
                 UsageError,
                 "'",
                 word,
                 "' needs a whole number behind =");
  }
  return layout;
}

Case without_idle_features(Case c) {
  const auto idle = [&c](bool without, std::initializer_list<int Case::*> values) {
    for (const Field& field : fields()) {
      if (without && std::find(values.begin(), values.end(), field.value) != values.end()) {
        c.*field.value = field.simplest;
      }
    }
  };
  idle(c.tp == 1, {&Case::sp, &Case::layer_tp});
  idle(c.pp == 1, {&Case::vpp, &Case::first_stage, &Case::last_stage});
  idle(c.experts == 1,
       {&Case::top_k,
        &Case::ep,
        &Case::etp,
        &Case::shared_expert,
        &Case::aux_loss,
        &Case::z_loss,
        &Case::expert_bias});
  idle(c.dp * c.cp == 1, {&Case::zero1});
  idle(c.zero1 == 0, {&Case::overlap_gather});
  idle(c.recompute != kFull, {&Case::recompute_layers});
  idle(c.precision != "fp8", {&Case::recipe, &Case::history, &Case::bf16_ends});
  idle(c.recipe != 0, {&Case::history});
  const int all_layers = (1 << c.layers) - 1;
  c.frozen &= all_layers;
  c.layer_tp &= all_layers;
  idle(c.layer_tp == 0, {&Case::layer_dp});
  return c;
}

std::string why_impossible(const Case& layout) {
  Rules rules;
  check_model(layout, rules);
  check_layout(layout, rules);
  check_stages(layout, rules);
  check_blocks(layout, rules);
  check_layers(layout, rules);
  if (layout.experts > 1) {
    check_experts(layout, rules);
  }
  return rules.broken();
}

testing::ConfigChanges changes_of(const Case& c) {
  testing::ConfigChanges changes = {{"model.layers", std::to_string(c.layers)},
                                    {"model.hidden", std::to_string(c.hidden())},
                                    {"model.heads", std::to_string(c.heads)},
                                    {"model.query_groups", std::to_string(c.groups)},
                                    {"model.ffn", std::to_string(c.ffn)},
                                    {"model.vocabulary", std::to_string(c.vocabulary)},
                                    {"model.sequence", std::to_string(c.sequence)},
                                    {"model.activation", c.swiglu != 0 ? "swiglu" : "gelu"},
                                    {"model.tied", c.tied != 0 ? "true" : "false"},
                                    {"data.micro_batch_size", std::to_string(c.batch)},
                                    {"data.micro_batches", std::to_string(c.micro_batches)},
                                    {"data.documents", c.packed != 0 ? "packed" : "single"},
                                    {"data.masked", c.masked != 0 ? "prompt" : "none"},
                                    {"loss", c.per_token != 0 ? "per_token" : "mean"}};
  const auto add = [&changes](const char* key, int value, const std::string& text) {
    if (value != 0) {
      changes[key] = text;
    }
  };
  if (c.experts > 1) {
    changes["model.experts"] = std::to_string(c.experts);
    changes["model.top_k"] = std::to_string(c.top_k);
  }
  add("model.shared_expert", c.shared_expert, std::to_string(c.shared_expert));
  add("model.aux_loss", c.aux_loss, "0.01");
  add("model.z_loss", c.z_loss, "0.001");
  add("model.expert_bias", c.expert_bias, "0.1");
  add("model.dropout", c.dropout, percent(c.dropout));
  add("model.attention_dropout", c.attention_dropout, percent(c.attention_dropout));
  add("model.label_smoothing", c.label_smoothing, percent(c.label_smoothing));
  add("model.frozen", c.frozen, "[" + layers_of(c.frozen) + "]");
  if (c.precision == "fp8") {
    constexpr std::array<const char*, 4> kRecipes = {"delayed", "current", "blockwise", "mxfp8"};
    changes["fp8.recipe"] = kRecipes.at(static_cast<std::size_t>(c.recipe));
    add("fp8.history", c.recipe == 0 ? 1 : 0, std::to_string(c.history));
    add("fp8.bf16_ends", c.bf16_ends, std::to_string(c.bf16_ends));
  }
  return changes;
}

std::string options_of(const Case& c) {
  const auto word = [](const char* option, int on) { return on != 0 ? option : std::string(); };
  std::string text =
      flag("tp", c.tp, 1) + word(" --sp", c.sp) + flag("cp", c.cp, 1) + flag("dp", c.dp, 1) +
      flag("pp", c.pp, 1) + flag("vpp", c.vpp, 1) + flag("first-stage-layers", c.first_stage, 0) +
      flag("last-stage-layers", c.last_stage, 0) + flag("ep", c.ep, 1) + flag("etp", c.etp, 0) +
      word(" --zero1", c.zero1) + word(" --overlap-gather", c.overlap_gather);
  if (c.recompute != 0) {
    text += c.recompute == kFull ? " --recompute full" : " --recompute selective";
    text += flag("recompute-layers", c.recompute_layers, 1);
  }
  if (c.layer_tp != 0) {
    text += " --layer-tp " + degrees_of(c) + word(" --layer-dp", c.layer_dp);
  }
  return text.empty() ? text : text.substr(1);
}

}  // namespace ttrace::fuzz_layouts
