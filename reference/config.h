// What a run is: the sizes of the model, its data, its optimizer, its precision; read from YAML.
//
// The letters of all shapes in this folder:
//
//   S  positions of a sequence         B  samples of a micro-batch      M  micro-batches of a step
//   H  hidden size                     L  layers                        V  vocabulary
//   N  query heads                     G  key/value groups (N % G == 0) D  head size, H / N
//   A  rows of linear_qkv, (N + 2G) D                                   F  ffn size
//   E  experts of a layer              K  experts that a token goes to  T  tokens, S B
//
// Activations are sequence-first: [S, B, H]. Tokens and labels are sample-first: [B, S].
//
// Thread-safety: values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ttrace::reference {

enum class Activation : std::uint8_t { kGelu, kSwiglu };
enum class Documents : std::uint8_t {
  kSingle,
  kPacked,  // a sample is several documents that do not see each other; their lengths are drawn
};
enum class Masked : std::uint8_t {
  kNone,
  kPrompt,  // the first tokens of a sample do not count in the loss; how many is drawn
};
enum class Loss : std::uint8_t {
  kMean,      // each micro-batch's mean over its tokens that count, averaged over micro-batches
  kPerToken,  // the mean over all tokens of the step that count
};
enum class Precision : std::uint8_t {
  kF64,
  kF32,
  kBf16,    // parameters and activations; main gradients, masters and moments are f32
  kFp8,     // as bf16, with the operands of a layer's linears quantised (fp8.h)
  kFp8F32,  // as f32, with the same: what fp8 would give if nothing else were rounded
};
enum class Fp8Recipe : std::uint8_t { kDelayed, kCurrent, kBlockwise, kMxfp8 };  // fp8.h

// As in the file: "gelu", "swiglu"; "single", "packed"; "none", "prompt"; "mean", "per_token";
// "f64", "f32", "bf16", "fp8", "fp8_f32"; "delayed", "current", "blockwise", "mxfp8".
[[nodiscard]] std::string to_string(Activation activation);
[[nodiscard]] std::string to_string(Documents documents);
[[nodiscard]] std::string to_string(Masked masked);
[[nodiscard]] std::string to_string(Loss loss);
[[nodiscard]] std::string to_string(Precision precision);
[[nodiscard]] std::string to_string(Fp8Recipe recipe);
[[nodiscard]] inline bool is_fp8(Precision precision) {
  return precision == Precision::kFp8 || precision == Precision::kFp8F32;
}
// "f64", "f32", "bf16", "fp8" or "fp8_f32". Throws UsageError for anything else.
[[nodiscard]] Precision parse_precision(const std::string& text);

struct ModelConfig {
  std::int64_t layers = 0;        // L
  std::int64_t hidden = 0;        // H
  std::int64_t heads = 0;         // N
  std::int64_t query_groups = 0;  // G
  std::int64_t ffn = 0;           // F
  std::int64_t vocabulary = 0;    // V: 256 bytes, anything, and last the beginning-of-sample token
  std::int64_t sequence = 0;      // S
  Activation activation = Activation::kGelu;
  bool tied = false;             // the output layer uses the embedding's weight
  std::int64_t rotary_base = 0;  // wavelengths of the rotary positions grow up to 2 pi rotary_base
  double norm_epsilon = 0.0;     // added to the variance
  double dropout = 0.0;          // probability that an element of a block's output is dropped
  double attention_dropout = 0.0;      // probability that an attention weight is dropped
  double label_smoothing = 0.0;        // probability that a label leaves to all other tokens
  std::vector<std::int64_t> frozen{};  // numbers of layers that do not train
  std::int64_t experts = 1;            // E; 1: a dense model
  std::int64_t top_k = 1;              // K
  std::int64_t shared_expert =
      0;                     // ffn size of an expert that every token goes to; 0: there is none
  double aux_loss = 0.0;     // weight of the loss that wants experts to be used alike
  double z_loss = 0.0;       // weight of the loss that wants the router's logits to be small
  double expert_bias = 0.0;  // what a step adds to or takes from the router's biases; 0: none

  [[nodiscard]] std::int64_t head_size() const { return hidden / heads; }  // D
};

struct DataConfig {
  std::string file;        // path as it can be opened: what the YAML says, relative to the YAML
  std::uint64_t seed = 0;  // of the samples and of the initial parameters
  std::int64_t micro_batch_size = 0;  // B
  std::int64_t micro_batches = 0;     // M
  Documents documents = Documents::kSingle;
  Masked masked = Masked::kNone;
};

struct OptimizerConfig {
  double learning_rate = 0.0;
  double beta1 = 0.0;
  double beta2 = 0.0;
  double epsilon = 0.0;
  double weight_decay = 0.0;  // of matrices only
  double clip = 0.0;          // largest norm that the gradient may keep
};

struct Fp8Config {
  Fp8Recipe recipe = Fp8Recipe::kDelayed;
  std::int64_t history = 16;   // steps that delayed scales look back
  std::int64_t bf16_ends = 0;  // so many first and so many last layers stay BF16

  [[nodiscard]] bool has_layer(std::int64_t layer, std::int64_t layers) const {
    return layer >= bf16_ends && layer < layers - bf16_ends;
  }
};

struct Config {
  ModelConfig model;
  DataConfig data;
  OptimizerConfig optimizer;
  Fp8Config fp8;  // for Precision::kFp8 and kFp8F32
  Loss loss = Loss::kMean;
  Precision precision = Precision::kF32;
  std::string start{};  // folder of a trace whose last step's parameters this run starts from;
                        // empty: parameters are filled
};

// Throws UsageError for an unreadable file and for an unknown, missing or impossible entry; the
// message names file and entry.
[[nodiscard]] Config load_config(const std::string& file);

// Throws UsageError where sizes contradict each other; load_config() has called it, call it again
// after changing a value.
void check(const Config& config);

}  // namespace ttrace::reference
