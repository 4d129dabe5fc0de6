// One random model in one random layout, as a row of whole numbers: what a case is, how it prints,
// which cases can exist, and the arguments for the two programs.
//
// The table fields() is the one place that knows every size, axis and feature.
// Thread-safety: values and free functions without shared state.
#pragma once

#include "support/derived_config.h"

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ttrace::fuzz_layouts {

// Switches are 1 or 0; the layers that a feature concerns are bits of a number.
struct Case {
  std::string precision = "bf16";
  int seed = 1;
  // Axes.
  int tp = 1;
  int sp = 0;
  int cp = 1;
  int dp = 1;
  int pp = 1;
  int vpp = 1;
  int first_stage = 0;  // layers of it; 0: as many as the others
  int last_stage = 0;
  int ep = 1;
  int etp = 0;  // 0: as tp
  int zero1 = 0;
  int overlap_gather = 0;
  int layer_tp = 0;  // layers with a smaller TP degree
  int layer_dp = 0;  // 0: which is 1, and all ranks compute the whole; else the free ranks divide
                     // the samples, and the degree is 1: half of tp, 2: 1
  // Model.
  int layers = 1;
  int heads = 2;
  int groups = 1;
  int head_size = 8;
  int ffn = 32;
  int vocabulary = 257;
  int sequence = 16;
  int swiglu = 0;
  int tied = 0;
  int experts = 1;
  int top_k = 1;
  int shared_expert = 0;  // its width
  int aux_loss = 0;
  int z_loss = 0;
  int expert_bias = 0;
  int dropout = 0;  // percent
  int attention_dropout = 0;
  int label_smoothing = 0;
  int frozen = 0;
  // Data and training.
  int batch = 1;  // samples of a micro-batch
  int micro_batches = 1;
  int steps = 1;
  int packed = 0;
  int masked = 0;
  int per_token = 0;
  int recompute = 0;  // 1 full, 2 selective
  int recompute_layers = 1;
  // FP8 only.
  int recipe = 0;  // 0 delayed, 1 current, 2 blockwise, 3 mxfp8
  int history = 1;
  int bf16_ends = 0;

  auto operator<=>(const Case&) const = default;

  [[nodiscard]] int hidden() const { return heads * head_size; }
  [[nodiscard]] int ranks() const { return tp * cp * dp * pp; }
  // The TP degree of layers with a smaller one.
  [[nodiscard]] int smaller_degree() const { return layer_dp == 1 && tp % 2 == 0 ? tp / 2 : 1; }
};

struct Field {
  std::string_view name;
  int Case::*value = nullptr;
  int simplest = 0;
  std::vector<int> choices;  // that are tried in addition to `simplest`, simple ones first
  bool axis = false;         // decides the number of ranks
  bool optional = false;     // mostly left at its simplest value
  bool on_request = false;   // left at its simplest value unless somebody asks for it
};

[[nodiscard]] std::span<const Field> fields();

// Precisions that have a feature.
enum class Where { kEverywhere, kFp8, kNotFp8 };

// The features whose coverage is counted.
struct Feature {
  std::string_view name;
  bool (*on)(const Case&) = nullptr;
  Where where = Where::kEverywhere;

  [[nodiscard]] bool can_be_on(const std::string& precision) const {
    return where == Where::kEverywhere || (where == Where::kFp8) == (precision == "fp8");
  }
};

[[nodiscard]] std::span<const Feature> features();

// "precision=bf16 seed=3 tp=2 sp=1 ...": fields that are not at their simplest value.
[[nodiscard]] std::string text_of(const Case& layout);
// Inverse. Throws UsageError quoting what is wrong.
[[nodiscard]] Case case_of(const std::string& text);

// Removes features without effect: --sp with one tensor-parallel rank.
[[nodiscard]] Case without_idle_features(Case layout);

// Why the programs would refuse it; empty if they do not.
[[nodiscard]] std::string why_impossible(const Case& layout);

// The differences from examples/tiny.yaml.
[[nodiscard]] testing::ConfigChanges changes_of(const Case& layout);
// "--tp 2 --sp"
[[nodiscard]] std::string options_of(const Case& layout);

}  // namespace ttrace::fuzz_layouts
