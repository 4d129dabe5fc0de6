// Causal self-attention with grouped queries and rotary position embedding; heads are split over
// tensor-parallel ranks, tokens over context-parallel ones.
//
// s tokens of a sample on this rank, b batch, n query heads and g query groups of this rank, d head
// size.
#pragma once

#include "layers.h"

#include <memory>

namespace megatron_mini {

// Where the tokens of a micro-batch stand. A token sees the earlier ones of its document.
struct TokenPlaces {
  at::Tensor positions;  // [s, b] i64: number of this rank's tokens within their documents
  at::Tensor documents;  // [tokens of all cp ranks, b] i64: number of each token's document within
                         // its sample; undefined where a sample is one document
  at::Tensor tokens{};   // [s, b] i64: number of this rank's tokens within the micro-batch, s b + b
                         // before samples were permuted
  at::Tensor counted{};  // [s, b] bool: which of this rank's tokens count in the loss
  std::int64_t microbatch = 0;  // number of the micro-batch within the step, over all ranks
};

// Scores and weighted sums, without parameters.
class CoreAttention : public torch::nn::Module {
 public:
  // Scores are scaled by scale_factor / sqrt(d); another factor than 1 is a planted bug.
  explicit CoreAttention(const Group& cp = {}, double scale_factor = 1.0)
      : cp_(cp), scale_factor_(scale_factor) {}

  // query [s, b, n, d], key and value [s, b, g, d], documents as in TokenPlaces -> [s, b, n * d]
  [[nodiscard]] at::Tensor forward(const at::Tensor& query,
                                   const at::Tensor& key,
                                   const at::Tensor& value,
                                   const at::Tensor& documents = {});

 private:
  Group cp_;
  double scale_factor_;
};

class SelfAttention : public torch::nn::Module {
 public:
  SelfAttention(const Blueprint& blueprint, const std::string& path);
  // [rows, b, h] -> [rows, b, h]
  [[nodiscard]] at::Tensor forward(const at::Tensor& input, const TokenPlaces& places);

 private:
  std::int64_t groups_;           // of this rank
  std::int64_t heads_per_group_;  // query heads that share a key and a value
  std::int64_t head_size_;
  std::int64_t rotary_base_;
  std::shared_ptr<ColumnParallelLinear> linear_qkv_;
  std::shared_ptr<CoreAttention> core_attention_;
  std::shared_ptr<RowParallelLinear> linear_proj_;
};

// Turns each pair of elements (i, i + d/2) by position / base^(2i/d), in f32 (f64 for f64), rounded
// once at the end. heads [s, b, n, d] -> the same; positions [s, b].
// Source: Su et al., "RoFormer" (2021), with the pairing of halves that GPT-NeoX uses.
[[nodiscard]] at::Tensor rotate(const at::Tensor& heads,
                                const at::Tensor& positions,
                                std::int64_t base);

}  // namespace megatron_mini
