// Causal self-attention with grouped queries and rotary position embedding; heads are split over
// tensor-parallel ranks, tokens over context-parallel ones.
//
// s tokens of a sample on this rank, b batch, n query heads and g query groups of this rank, d head
// size.
#pragma once

#include "blueprint.h"
#include "dropout.h"
#include "layers.h"
#include "ring_attention.h"
#include "token_places.h"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace megatron_mini {

// Dropout of attention weights.
struct WeightDropout {
  double probability = 0.0;
  std::string path;             // of the dropout
  std::int64_t first_head = 0;  // logical number of this rank's first query head
  std::int64_t heads = 0;       // of all ranks
  std::int64_t sequence = 0;    // tokens of all cp ranks
};

// Scores and weighted sums, without parameters.
class CoreAttention : public torch::nn::Module {
 public:
  explicit CoreAttention(
      const Group& cp = {},
      WeightDropout dropout = {},
      std::shared_ptr<const RingSteps> ring_steps = std::make_shared<RingSteps>())
      : cp_(cp), dropout_(std::move(dropout)), ring_steps_(std::move(ring_steps)) {}
  CoreAttention(WeightDropout dropout, const Blueprint& blueprint, const std::string& path)
      : CoreAttention(blueprint.parallel.cp, std::move(dropout), blueprint.parts->ring(path)) {}

  // query [s, b, n, d], key and value [s, b, g, d] -> [s, b, n * d]
  [[nodiscard]] at::Tensor forward(const at::Tensor& query,
                                   const at::Tensor& key,
                                   const at::Tensor& value,
                                   const TokenPlaces& places = {});

 protected:
  // What the scores of this query [s, b, n, d] are multiplied by: 1 / sqrt(d).
  [[nodiscard]] virtual double scale_of_scores(const at::Tensor& query) const;

 private:
  // [b, n, s, tokens of all cp ranks] bool: which weights of n heads are kept; undefined: all.
  [[nodiscard]] at::Tensor kept_weights(std::int64_t n,
                                        const TokenPlaces& places,
                                        c10::Device device) const;

  Group cp_;
  WeightDropout dropout_;
  std::shared_ptr<const RingSteps> ring_steps_;
};

class SelfAttention : public torch::nn::Module {
 public:
  SelfAttention(const Blueprint& blueprint, const std::string& path);
  // [rows, b, h] -> [rows, b, h]
  [[nodiscard]] at::Tensor forward(const at::Tensor& input, const TokenPlaces& places);

 protected:
  // By which rotary embedding turns this rank's queries and keys, [s, b].
  [[nodiscard]] virtual at::Tensor positions(const TokenPlaces& places) const;
  // heads [s, b, n, d] -> the same, turned by positions [s, b].
  [[nodiscard]] virtual at::Tensor turn(const at::Tensor& heads, const at::Tensor& positions) const;
  [[nodiscard]] const Parallel& parallel() const { return parallel_; }

 private:
  // The output of linear_qkv -> this rank's queries [s, b, n, d], keys and values [s, b, g, d].
  [[nodiscard]] std::vector<at::Tensor> split(const at::Tensor& mixed) const;

  Parallel parallel_;
  std::int64_t groups_;           // of this rank, one where ranks share a group
  std::int64_t heads_per_group_;  // of this rank
  std::int64_t shared_heads_;     // of all ranks, that share a key and a value
  std::int64_t head_size_;
  std::int64_t rotary_base_;
  bool recomputes_core_;
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
