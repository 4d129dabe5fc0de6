// The layers with parameters; most are split over tensor-parallel ranks.
//
// Activations are sequence-first. s is what a context-parallel rank holds of the sequence; `rows`
// is s, or s / tp where sequence parallelism is on. All layers open a scope, because their last
// operation uses no parameter of theirs.
//
// Thread-safety: none; one training thread.
#pragma once

#include "blueprint.h"
#include "fp8_linear.h"
#include "parallel.h"
#include "regions.h"

#include <ttrace/scope.h>

#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <string>

namespace megatron_mini {

// Rows of an embedding or output weight over all ranks: a multiple of 64 * tp, as in Megatron-LM.
// The rows behind the vocabulary are zero and stay so.
[[nodiscard]] std::int64_t padded_vocabulary(std::int64_t vocabulary, int tp);

// Whole on every rank: weight and bias [h]. Statistics and the sums of parameter gradients are in
// f32 for bf16 tensors, as in Megatron-LM's fused kernels; ATen's own bf16 kernel adds up a column
// of the batch in bf16, in an order that depends on the number of threads.
class LayerNorm : public torch::nn::Module {
 public:
  explicit LayerNorm(const Blueprint& blueprint);
  [[nodiscard]] virtual at::Tensor forward(const at::Tensor& input);  // [rows, b, h] -> the same

 protected:
  // Rows of the input, in the type in which they are computed.
  [[nodiscard]] virtual at::Tensor normalise(const at::Tensor& rows) const;
  // The parameters in the type in which rows are computed.
  [[nodiscard]] virtual at::Tensor weight_in(at::ScalarType type) const;
  [[nodiscard]] virtual at::Tensor bias_in(at::ScalarType type) const;
  [[nodiscard]] const at::Tensor& weight() const { return weight_; }

 private:
  double epsilon_;
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

 protected:
  // What this rank has of the input -> the whole input [s, b, inputs].
  [[nodiscard]] virtual at::Tensor gather_input(const at::Tensor& mine) const;
  // whole [s, b, inputs], of which this rank gave `mine`; `bias` may be undefined.
  [[nodiscard]] virtual at::Tensor product(const at::Tensor& whole,
                                           const at::Tensor& mine,
                                           const at::Tensor& weight,
                                           const at::Tensor& bias) const;
  [[nodiscard]] const Parallel& parallel() const { return parallel_; }

 private:
  Parallel parallel_;
  std::shared_ptr<Fp8Linear> fp8_;  // null: computes in the type of its tensors
  at::Tensor weight_;
  at::Tensor bias_;
};

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

 protected:
  // This rank's addends: [s, b, inputs/tp] -> [s, b, outputs].
  [[nodiscard]] virtual at::Tensor addend(const at::Tensor& input, ttrace::Scope& scope);
  // The same without FP8.
  [[nodiscard]] virtual at::Tensor product(const at::Tensor& input, const at::Tensor& weight) const;
  // Addends -> this rank's rows of their sum, [rows, b, outputs].
  [[nodiscard]] virtual at::Tensor sum_over_ranks(const at::Tensor& addend) const;
  // Addends -> the sum with the bias.
  [[nodiscard]] virtual at::Tensor output(const at::Tensor& addend) const;

  [[nodiscard]] const Parallel& parallel() const { return parallel_; }
  [[nodiscard]] const at::Tensor& weight() const { return weight_; }
  [[nodiscard]] const at::Tensor& bias() const { return bias_; }

 private:
  Parallel parallel_;
  std::shared_ptr<Fp8Linear> fp8_;  // null: computes in the type of its tensors
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

 protected:
  // Tokens first .. end - 1 are in this rank's rows.
  struct Tokens {
    std::int64_t first = 0;
    std::int64_t end = 0;
  };
  [[nodiscard]] virtual Tokens own_tokens() const { return own_; }
  // Rows [s, b, h] that were looked up -> zeros where a token [s, b] is in another rank's rows.
  [[nodiscard]] virtual at::Tensor without_others(const at::Tensor& rows,
                                                  const at::Tensor& elsewhere) const;
  [[nodiscard]] const Parallel& parallel() const { return parallel_; }

 private:
  Parallel parallel_;
  Tokens own_;
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

 protected:
  [[nodiscard]] bool is_tied() const { return tied_weight_.defined(); }
  [[nodiscard]] virtual at::Tensor weight() const { return is_tied() ? tied_weight_ : weight_; }

 private:
  Parallel parallel_;
  at::Tensor tied_weight_;  // undefined where weight_ is used
  at::Tensor weight_;
};

}  // namespace megatron_mini
