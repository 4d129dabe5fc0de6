#include "roc/plan.h"

#include "trace/base/pattern.h"

#include <ttrace/error.h>

#include <algorithm>
#include <set>

namespace ttrace::roc {
namespace {

constexpr int kLayers = 4;

// Layouts of the clean runs that are counted; the first one is that of the mutants.
const std::vector<std::string> kLayouts = {
    "--tp 4 --sp", "--tp 2 --sp", "--tp 2", "--cp 2", "--tp 2 --sp --cp 2", "--pp 2"};
constexpr int kFirstCleanSeed = 101;

// Clean runs to be counted.
std::size_t wanted_cleans(const std::string& precision) {
  return precision == "bf16" ? 300 : precision == "f64" ? 0 : 100;
}

// One for every setting in the mutants' layout; with `counted`, more settings and layouts.
void add_cleans(bool counted, Plan& plan) {
  if (counted) {
    for (const std::string precision : {"bf16", "f32", "fp8"}) {
      auto settings = static_cast<std::size_t>(
          std::count_if(plan.settings.begin(), plan.settings.end(), [&](const Setting& setting) {
            return setting.precision == precision;
          }));
      int seed = kFirstCleanSeed;
      for (; settings * kLayouts.size() < wanted_cleans(precision); ++settings) {
        plan.settings.push_back({precision, Weights::kInit, seed++});
      }
    }
  }
  for (std::size_t layout = 0; layout < (counted ? kLayouts.size() : 1); ++layout) {
    for (std::size_t i = 0; i < plan.settings.size(); ++i) {
      if (layout == 0 || wanted_cleans(plan.settings[i].precision) > 0) {
        plan.cleans.push_back({i, kLayouts[layout]});
      }
    }
  }
}

// Whether a mutant acts in one layer.
bool has_layer(const std::string& mutant) {
  return mutant != "common_grad_factor" && !mutant.starts_with("optimizer_");
}

std::vector<Key> chosen_keys(const Choice& choice) {
  std::vector<Key> keys = all_keys();
  if (choice.quick) {
    std::erase_if(keys, [](const Key& key) { return key.quick == 0.0; });
    for (Key& key : keys) {
      key.mutants.resize(1);
      key.goal = key.quick;
    }
  }
  if (choice.keys) {
    const Pattern wanted("--keys", *choice.keys);
    std::erase_if(keys, [&](const Key& key) { return !wanted.found_in(key.name); });
    TTRACE_CHECK(!keys.empty(),
                 UsageError,
                 "--keys '",
                 *choice.keys,
                 "' matches no key; docs/figures/roc.md lists the keys");
  }
  return keys;
}

// The magnitudes that the keys of a quick plan must find.
std::map<std::string, std::vector<double>> quick_magnitudes(const std::vector<Key>& keys) {
  std::map<std::string, std::vector<double>> magnitudes;
  for (const Key& key : keys) {
    std::vector<double>& list = magnitudes[key.mutants.front()];
    list.push_back(key.quick);
    std::sort(list.begin(), list.end());
  }
  return magnitudes;
}

// A pattern for a module of layer `layer`, for kinds of a micro-batch.
std::string in_layer(const std::string& kind, int layer, const std::string& part) {
  return "s0/m0/" + kind + R"(/decoder\.layers\.)" + std::to_string(layer) + R"(\.)" + part;
}

// The places of a linear whose product is mutated: its output; and of the operator also the
// gradients of its weight and of what `before` feeds it.
Places linear_places(int layer, const std::string& linear, const std::string& before) {
  const std::string own = in_layer("output", layer, linear + "/0");
  return {own,
          own + "|" + in_layer("param_grad", layer, linear + R"(\.weight/0)") + "|" +
              in_layer("grad_output", layer, before + "/0")};
}

}  // namespace

const std::vector<Key>& all_keys() {
  static const std::vector<std::string> scale = {"operator_scale", "operator_scale_proj"};
  static const std::vector<Key> keys = {
      {"bf16_t1_operator_scale", "bf16", "T1", scale, 0.003, 0.001},
      {"bf16_t1_partial_sum", "bf16", "T1", {"partial_sum"}, 0.01},
      {"bf16_t1_softmax_scale", "bf16", "T1", {"softmax_scale"}, 0.01},
      {"bf16_t1_row", "bf16", "T1", {"row"}, 0.01},
      {"bf16_t1_weight_grad", "bf16", "T1", {"weight_grad"}, 0.003},
      {"bf16_t1_common_grad_factor", "bf16", "T1", {"common_grad_factor"}, 0.001},
      {"bf16_t1_norm_grad_shard", "bf16", "T1", {"norm_grad_shard"}, 0.01, 0.01},
      {"bf16_t2_operator_scale", "bf16", kWithoutForced, scale, 0.01, 0.002},
      {"bf16_t2_partial_sum", "bf16", kWithoutForced, {"partial_sum"}, 0.03},
      {"bf16_t2_weight_grad", "bf16", kWithoutForced, {"weight_grad"}, 0.03},
      {"fp8_t1_operator_scale", "fp8", "T1", {"operator_scale"}, 0.01},
      {"fp32_t1_operator_scale", "f32", "T1", {"operator_scale"}, 1e-5},
      {"fp64_logic_operator_scale", "f64", kAnyTier, {"operator_scale"}, 1e-9},
      {"optimizer_hyperparameter",
       "bf16",
       kAnyTier,
       {"optimizer_lr",
        "optimizer_weight_decay",
        "optimizer_beta1",
        "optimizer_beta2",
        "optimizer_bias_correction"},
       1e-3}};
  return keys;
}

std::string at_operator(const std::string& detector) {
  return detector + "@operator";
}

Places places_of(const Series& series) {
  const int layer = series.layer.value_or(0);
  const auto alone = [](const std::string& own) { return Places{own, own}; };
  if (series.mutant == "softmax_scale") {
    return alone(in_layer("(output|grad_input)", layer, R"(self_attention\.core_attention/\d)"));
  }
  if (series.mutant == "weight_grad") {
    return alone(in_layer("param_grad", layer, R"(mlp\.linear_fc2\.weight/0)"));
  }
  if (series.mutant == "norm_grad_shard") {
    return alone(in_layer("param_grad", layer, R"(input_layernorm\.weight/0)"));
  }
  if (series.mutant == "common_grad_factor") {
    return alone("s0/m0/grad_output/loss/0");
  }
  if (series.mutant == "optimizer_beta1" || series.mutant == "optimizer_beta2") {
    return alone(series.mutant == "optimizer_beta1" ? "s0/exp_avg/.*" : "s0/exp_avg_sq/.*");
  }
  if (series.mutant.starts_with("optimizer_")) {
    return alone("s0/(master|param_next)/.*");
  }
  return series.mutant == "operator_scale_proj"
             ? linear_places(
                   layer, R"(self_attention\.linear_proj)", R"(self_attention\.core_attention)")
             : linear_places(layer, R"(mlp\.linear_fc2)", R"(mlp\.activation)");
}

std::string name_of(Weights weights) {
  return weights == Weights::kInit ? "init" : "trained";
}

bool Plan::needs_training() const {
  return std::any_of(settings.begin(), settings.end(), [](const Setting& setting) {
    return setting.weights == Weights::kTrained;
  });
}

Plan make_plan(const Choice& choice) {
  TTRACE_CHECK(choice.seeds >= 1, UsageError, "--seeds must be at least 1, not ", choice.seeds);
  Plan plan{.keys = chosen_keys(choice),
            .config = {{"model.layers", std::to_string(kLayers)},
                       {"data.micro_batches", "1"},
                       {"fp8.recipe", "current"}},
            .layout = kLayouts.front()};
  std::vector<int> layers = {0, kLayers / 2, kLayers - 1};
  std::vector<Weights> weights = {Weights::kInit, Weights::kTrained};
  int seeds = choice.seeds;
  if (choice.quick) {
    layers = {kLayers / 2};
    weights = {Weights::kInit};
    seeds = 1;
    plan.magnitudes = quick_magnitudes(plan.keys);
    plan.noise = 3;
  }
  for (int seed = 1; seed <= seeds; ++seed) {
    plan.seeds.push_back(seed);
  }
  std::set<Series> series;
  std::set<Setting> settings;
  for (const Key& key : plan.keys) {
    for (const Weights start : weights) {
      for (const int seed : plan.seeds) {
        settings.insert({key.precision, start, seed});
      }
      for (const std::string& mutant : key.mutants) {
        if (!has_layer(mutant)) {
          series.insert({key.precision, start, mutant, std::nullopt});
          continue;
        }
        for (const int layer : layers) {
          series.insert({key.precision, start, mutant, layer});
        }
      }
    }
  }
  plan.series.assign(series.begin(), series.end());
  plan.settings.assign(settings.begin(), settings.end());
  add_cleans(!choice.quick && !choice.keys, plan);
  return plan;
}

std::vector<double> half_decades(const std::string& precision) {
  const int lowest = precision == "f64" ? -12 : precision == "f32" ? -7 : -4;
  std::vector<double> result;
  for (int exponent = lowest; exponent < 0; ++exponent) {
    // Through text, so that 3e-4 is the number that one would write.
    for (const char* digit : {"1e", "3e"}) {
      result.push_back(std::stod(digit + std::to_string(exponent)));
    }
  }
  result.push_back(1.0);
  return result;
}

std::vector<double> magnitudes_of(const Plan& plan, const Series& series) {
  const auto chosen = plan.magnitudes.find(series.mutant);
  return chosen == plan.magnitudes.end() ? half_decades(series.precision) : chosen->second;
}

std::string describe(const Series& series) {
  return series.mutant + (series.layer ? ", layer " + std::to_string(*series.layer) : "") + ", " +
         series.precision + ", " + name_of(series.weights);
}

std::string describe(const Setting& setting) {
  return setting.precision + ", " + name_of(setting.weights) + ", seed " +
         std::to_string(setting.seed);
}

}  // namespace ttrace::roc
