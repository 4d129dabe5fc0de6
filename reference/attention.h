// Causal self-attention with grouped queries, every product written out.
//
// Sources: Vaswani et al., "Attention is all you need" (2017), equation 1; Ainslie et al., "GQA:
// training generalized multi-query transformer models" (2023), section 2.2.
#pragma once

#include "config.h"
#include "dropout.h"
#include "layers.h"
#include "rotary.h"

#include <memory>

namespace ttrace::reference {

struct QueryKeyValue {
  at::Tensor query;  // [S, B, N, D]
  at::Tensor key;    // [S, B, G, D]
  at::Tensor value;  // [S, B, G, D]
};

// Splits the output of linear_qkv [S, B, A]. Its features are in Megatron's order: for each group
// the N/G query heads that share it, then its key head, then its value head.
[[nodiscard]] QueryKeyValue split_qkv(const at::Tensor& qkv, const ModelConfig& model);

// softmax(Q K^T / sqrt(D) + mask), head by head; head n reads group n / (N/G). A token sees itself
// and the earlier ones of its document; documents [B, S] as in Samples, undefined: a sample is one.
// Products in the working type, softmax in high precision. Returns [B, N, S query, S key].
[[nodiscard]] at::Tensor attention_weights(const QueryKeyValue& qkv, const at::Tensor& documents);

// Sums of values with these weights: [S, B, N D].
[[nodiscard]] at::Tensor weighted_sums(const at::Tensor& weights, const at::Tensor& value);

class SelfAttention : public torch::nn::Module {
 public:
  // `path` of this module in the model.
  SelfAttention(const ModelConfig& model,
                const at::TensorOptions& options,
                const std::string& path);
  // [S, B, H] -> same
  at::Tensor forward(const at::Tensor& x,
                     const RotaryTable& rotary,
                     const at::Tensor& documents,
                     const Draw& draw) const;  // of the attention weights' dropout

  std::shared_ptr<Linear> linear_qkv;   // H -> A
  std::shared_ptr<Linear> linear_proj;  // N D -> H

 private:
  ModelConfig model_;
  Dropout weight_dropout_;
};

}  // namespace ttrace::reference
