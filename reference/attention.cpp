#include "attention.h"

#include "precision.h"

#include <ttrace/scope.h>

#include <cmath>
#include <limits>

namespace ttrace::reference {

QueryKeyValue split_qkv(const at::Tensor& qkv, const ModelConfig& model) {
  const std::int64_t s = qkv.size(0);
  const std::int64_t b = qkv.size(1);
  const std::int64_t d = model.head_size();
  const std::int64_t shared = model.heads / model.query_groups;                  // N/G
  const at::Tensor heads = qkv.view({s, b, model.query_groups, shared + 2, d});  // by group
  return {heads.narrow(3, 0, shared).reshape({s, b, model.heads, d}),
          heads.select(3, shared),
          heads.select(3, shared + 1)};
}

at::Tensor attention_weights(const QueryKeyValue& qkv, const at::Tensor& documents) {
  const std::int64_t s = qkv.query.size(0);
  const std::int64_t d = qkv.query.size(3);
  const std::int64_t shared = qkv.query.size(2) / qkv.key.size(2);  // N/G
  const at::ScalarType working = qkv.query.scalar_type();

  const at::Tensor query = qkv.query.permute({1, 2, 0, 3});                           // [B,N,S,D]
  const at::Tensor key = qkv.key.repeat_interleave(shared, 2).permute({1, 2, 3, 0});  // [B,N,D,S]

  const at::Tensor scores =
      at::matmul(query, key) / std::sqrt(static_cast<double>(d));  // [B,N,S query,S key]
  at::Tensor hidden =
      at::ones({s, s}, scores.options().dtype(at::kBool)).triu(1);  // key after query
  if (documents.defined()) {
    const at::Tensor elsewhere = documents.unsqueeze(2).ne(documents.unsqueeze(1));  // [B,S,S]
    hidden = hidden.logical_or(elsewhere).unsqueeze(1);
  }
  const at::Tensor masked = scores.masked_fill(hidden, -std::numeric_limits<double>::infinity());
  return masked.to(high_precision(working)).softmax(-1).to(working);
}

at::Tensor weighted_sums(const at::Tensor& weights, const at::Tensor& value) {
  const std::int64_t shared = weights.size(1) / value.size(2);  // N/G
  const at::Tensor of_heads =
      value.repeat_interleave(shared, 2).permute({1, 2, 0, 3});  // [B,N,S,D]
  const at::Tensor context = at::matmul(weights, of_heads);      // [B,N,S,D]
  return context.permute({2, 0, 1, 3}).flatten(2);               // [S,B,N D]
}

SelfAttention::SelfAttention(const ModelConfig& model,
                             const at::TensorOptions& options,
                             const std::string& path)
    : linear_qkv(register_module(
          "linear_qkv",
          std::make_shared<Linear>(
              model.hidden, (model.heads + 2 * model.query_groups) * model.head_size(), options))),
      linear_proj(register_module("linear_proj",
                                  std::make_shared<Linear>(model.hidden, model.hidden, options))),
      model_(model),
      weight_dropout_(model.attention_dropout, path + ".core_attention.dropout") {}

at::Tensor SelfAttention::forward(const at::Tensor& x,
                                  const RotaryTable& rotary,
                                  const at::Tensor& documents,
                                  const Draw& draw) const {
  QueryKeyValue qkv = split_qkv(linear_qkv->forward(x), model_);
  const at::Tensor query = rotate(qkv.query, rotary);
  const at::Tensor key = rotate(qkv.key, rotary);

  at::Tensor context;
  {
    Scope scope(*this, "core_attention");
    qkv = {scope.in(query, 0), scope.in(key, 1), scope.in(qkv.value, 2)};
    at::Tensor weights = attention_weights(qkv, documents);
    if (weight_dropout_.active()) {
      Scope dropout(*this, "core_attention.dropout");
      const at::Tensor kept = weight_dropout_.kept(weights.sizes(), 0, draw).to(weights.device());
      weights = weight_dropout_.apply(weights, dropout.mask(kept));
    }
    context = scope.out(weighted_sums(weights, qkv.value));
  }
  return linear_proj->forward(context);
}

}  // namespace ttrace::reference
