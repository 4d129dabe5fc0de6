// The training configuration: what examples/tiny.yaml says, read and checked.
//
// Thread-safety: values and free functions without shared state.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace megatron_mini {

enum class Activation : std::uint8_t { kGelu, kSwiglu };
// Whether a sample is one document or several, between which attention is blocked.
enum class Documents : std::uint8_t { kSingle, kPacked };
// Which tokens of a sample count in the loss: all, or those behind its first few.
enum class Masked : std::uint8_t { kNone, kPrompt };
// What is minimised: the mean over micro-batches of each one's mean over its tokens that count, or
// the mean over all tokens of a step that count. They differ where micro-batches have unequal
// numbers of such tokens.
enum class Loss : std::uint8_t { kMean, kPerToken };
// kFP8 is kBF16 with the operands of a layer's linears quantised to FP8.
enum class Precision : std::uint8_t { kF64, kF32, kBF16, kFP8 };
// What an operand's elements share a scale with; fp8_quantiser.h.
enum class Fp8Recipe : std::uint8_t { kDelayed, kCurrent, kBlockwise, kMxfp8 };

struct ModelConfig {
  std::int64_t layers = 0;
  std::int64_t hidden = 0;
  std::int64_t heads = 0;
  std::int64_t query_groups = 0;  // key/value heads
  std::int64_t ffn = 0;           // width between fc1's activation and fc2
  std::int64_t vocabulary = 0;    // logical, without padding rows
  std::int64_t sequence = 0;
  Activation activation = Activation::kGelu;
  bool tied = false;  // the output layer shares the embedding's weight
  std::int64_t rotary_base = 0;
  double norm_epsilon = 0.0;
  double dropout = 0.0;              // probability of zeroing, of what blocks add to the stream
  double attention_dropout = 0.0;    // of attention weights
  double label_smoothing = 0.0;      // probability that labels leave to the other tokens
  std::vector<std::int64_t> frozen;  // numbers of layers that do not train
  std::int64_t experts = 1;          // of every layer; 1: a dense model
  std::int64_t top_k = 1;            // experts that a token goes to
  std::int64_t shared_expert = 0;    // ffn width of an expert that has all tokens; 0: none
  double aux_loss = 0.0;             // coefficient of the routers' load-balancing loss
  double z_loss = 0.0;               // coefficient of the routers' z loss
  double expert_bias = 0.0;          // rate of the biases of the routers' choice; 0: no biases

  [[nodiscard]] std::int64_t head_size() const { return hidden / heads; }
  // Blocks of rows in fc1: gate and up, or one.
  [[nodiscard]] std::int64_t gates() const { return activation == Activation::kSwiglu ? 2 : 1; }
};

struct DataConfig {
  std::string file;  // absolute, or relative to the working directory
  std::uint64_t seed = 0;
  std::int64_t micro_batch_size = 0;
  std::int64_t micro_batches = 0;  // per step, over all data-parallel ranks
  Documents documents = Documents::kSingle;
  Masked masked = Masked::kNone;
};

struct OptimizerConfig {
  double learning_rate = 0.0;
  double beta1 = 0.0;
  double beta2 = 0.0;
  double epsilon = 0.0;
  double weight_decay = 0.0;  // of tensors with two dimensions or more
  double clip = 0.0;          // largest gradient norm
};

struct Fp8Config {
  Fp8Recipe recipe = Fp8Recipe::kDelayed;
  std::int64_t history = 16;   // past steps that delayed scales follow from
  std::int64_t bf16_ends = 0;  // first layers, and as many last ones, that stay BF16
};

struct Config {
  ModelConfig model;
  DataConfig data;
  OptimizerConfig optimizer;
  Fp8Config fp8;  // of precision fp8
  Loss loss = Loss::kMean;
  Precision precision = Precision::kBF16;
  // Folder of a trace whose last step's parameters this run starts from; empty: they are filled.
  std::string start{};
};

// Throws UsageError naming file and key for what is missing, unknown, of the wrong type or
// contradictory.
[[nodiscard]] Config load_config(const std::string& file);

// "f64", "f32", "bf16", "fp8"; the second throws UsageError for any other name.
[[nodiscard]] std::string name_of(Precision precision);
[[nodiscard]] Precision parse_precision(const std::string& name);

// As in the file: "gelu", "swiglu"; "single", "packed"; "none", "prompt"; "mean", "per_token";
// "delayed", "current", "blockwise", "mxfp8".
[[nodiscard]] std::string name_of(Activation activation);
[[nodiscard]] std::string name_of(Documents documents);
[[nodiscard]] std::string name_of(Masked masked);
[[nodiscard]] std::string name_of(Loss loss);
[[nodiscard]] std::string name_of(Fp8Recipe recipe);

}  // namespace megatron_mini
