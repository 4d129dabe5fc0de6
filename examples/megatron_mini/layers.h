// The layers with parameters; most are split over tensor-parallel ranks.
//
// Activations are sequence-first. s is what a context-parallel rank holds of the sequence; `rows`
// is s, or s / tp where sequence parallelism is on. All layers open a scope, because their last
// operation uses no parameter of theirs.
//
// Thread-safety: none; one training thread.
#pragma once

#include "before_forward.h"
#include "bugs.h"
#include "config.h"
#include "fp8_linear.h"
#include "mutants.h"
#include "parallel.h"
#include "recompute.h"
#include "regions.h"

#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace megatron_mini {

// What every part of the model is built from.
struct Blueprint {
  ModelConfig model;
  Parallel parallel;
  Bugs bugs;
  Mutant mutant{};
  RecomputePlan recompute{};
  std::vector<int> layer_tp{};  // TP degree of each layer, 1 or tp; empty: tp
  std::shared_ptr<BeforeForward> before_forward = std::make_shared<BeforeForward>();
  std::optional<Fp8Config> fp8{};  // of linears in layers; nothing: none computes in FP8
  // Of the whole step; what losses that start in the model are scaled by.
  Loss loss = Loss::kMean;
  std::int64_t micro_batches = 1;

  // What layer `number` is built from.
  [[nodiscard]] Blueprint of_layer(std::int64_t number) const;
};

// Throws ttrace::UsageError where the model cannot be split so.
void check_divisible(const ModelConfig& model, const Parallel& parallel);

// Rows of an embedding or output weight over all ranks: a multiple of 64 * tp, as in Megatron-LM.
// The rows behind the vocabulary are zero and stay so.
[[nodiscard]] std::int64_t padded_vocabulary(std::int64_t vocabulary, int tp);

// Whole on every rank: weight and bias [h]. Statistics and the sums of parameter gradients are in
// f32 for bf16 tensors, as in Megatron-LM's fused kernels; ATen's own bf16 kernel adds up a column
// of the batch in bf16, in an order that depends on the number of threads.
class LayerNorm : public torch::nn::Module {
 public:
  // Another factor than 1 is a planted bug, or a mutant.
  explicit LayerNorm(const Blueprint& blueprint, double weight_gradient_factor = 1.0);
  [[nodiscard]] at::Tensor forward(const at::Tensor& input);  // [rows, b, h] -> the same

 private:
  // Rows of the input, in the type in which they are computed.
  [[nodiscard]] at::Tensor normalise(const at::Tensor& rows) const;

  double epsilon_;
  bool in_halves_;           // a planted bug
  double gradient_divisor_;  // of weight and bias; another one than 1 is a planted bug
  double weight_gradient_factor_;
  at::Tensor weight_;
  at::Tensor bias_;
};

// Output features are split: weight [outputs/tp, inputs], bias [outputs/tp].
class ColumnParallelLinear : public torch::nn::Module {
 public:
  ColumnParallelLinear(std::int64_t inputs,
                       std::int64_t outputs,
                       const Blueprint& blueprint,
                       const std::string& path);
  // [rows, b, inputs] -> [s, b, outputs/tp]
  [[nodiscard]] at::Tensor forward(const at::Tensor& input);
  // Whether weight and bias are whole on every rank, with whole gradients.
  [[nodiscard]] bool is_redundant() const { return parallel_.is_redundant; }
  [[nodiscard]] Fp8Linear* fp8() const { return fp8_.get(); }

 private:
  // whole [s, b, inputs], of which this rank gave `mine`; `bias` may be undefined.
  [[nodiscard]] at::Tensor product(const at::Tensor& whole,
                                   const at::Tensor& mine,
                                   const at::Tensor& weight,
                                   const at::Tensor& bias) const;

  Parallel parallel_;
  SumOverRanks backward_sum_;
  RowOrder gather_order_;
  // A planted bug: for the weight's gradient the gathered input is read with ranks and rows mixed.
  bool mixes_gathered_rows_;
  std::unique_ptr<Fp8Linear> fp8_;  // null: computes in the type of its tensors
  at::Tensor weight_;
  at::Tensor bias_;
};

// Planted bugs of a row-parallel linear: its input is kept in a buffer that others overwrite; the
// gradient of its input comes from this rank's rows of the output's gradient.
enum class RowFault : std::uint8_t { kNone, kSharedBuffer, kGradientOfOwnRows };

// Input features are split: weight [outputs, inputs/tp], bias [outputs], added after the sum.
class RowParallelLinear : public torch::nn::Module {
 public:
  RowParallelLinear(std::int64_t inputs,
                    std::int64_t outputs,
                    const Blueprint& blueprint,
                    const std::string& path);
  // [s, b, inputs/tp] -> [rows, b, outputs]
  [[nodiscard]] at::Tensor forward(const at::Tensor& input);
  // Whether the weight is whole on every rank, with a whole gradient.
  [[nodiscard]] bool is_redundant() const { return parallel_.is_redundant; }
  [[nodiscard]] Fp8Linear* fp8() const { return fp8_.get(); }

 private:
  // This rank's addends: [s, b, inputs/tp] -> [s, b, outputs].
  [[nodiscard]] at::Tensor product(const at::Tensor& input, const at::Tensor& weight) const;

  Parallel parallel_;
  RowFault fault_;
  ProductMutant mutant_;
  bool drops_recomputed_sum_;       // a planted bug
  std::unique_ptr<Fp8Linear> fp8_;  // null: computes in the type of its tensors
  SumOverRanks forward_sum_;
  bool bias_before_sum_;
  double output_factor_;
  at::Tensor weight_;
  at::Tensor bias_;
};

// The vocabulary's rows are split: weight [padded/tp, h].
class VocabularyEmbedding : public torch::nn::Module {
 public:
  explicit VocabularyEmbedding(const Blueprint& blueprint);
  // tokens [s, b] -> [rows, b, h]
  [[nodiscard]] at::Tensor forward(const at::Tensor& tokens);
  [[nodiscard]] const at::Tensor& weight() const { return weight_; }

 private:
  Parallel parallel_;
  std::int64_t first_;  // tokens first_ .. end_ - 1 are in this rank's rows
  std::int64_t end_;
  bool keeps_foreign_rows_;  // a planted bug
  at::Tensor weight_;
};

// The vocabulary's columns of the logits are split: weight [padded/tp, h], its own or the
// embedding's.
class OutputLayer : public torch::nn::Module {
 public:
  // `tied_weight`: the embedding's, or undefined for a parameter of its own.
  OutputLayer(const Blueprint& blueprint, const at::Tensor& tied_weight);
  // [rows, b, h] -> [s, b, padded/tp]; columns of padding are 0.
  [[nodiscard]] at::Tensor forward(const at::Tensor& input);

 private:
  Parallel parallel_;
  bool drops_gradient_;     // of a tied weight
  at::Tensor tied_weight_;  // undefined where weight_ is used
  at::Tensor weight_;
};

}  // namespace megatron_mini
