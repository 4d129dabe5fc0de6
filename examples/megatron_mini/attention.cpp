#include "attention.h"

#include "recompute.h"
#include "wide_type.h"

#include <ttrace/scope.h>

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace megatron_mini {

namespace {

// The type in which sensitive parts are computed.
// [s, b, heads, d] -> [b, n, s, d], every key/value head repeated for the n / heads queries of its
// group.
at::Tensor by_head(const at::Tensor& tensor, std::int64_t n) {
  return tensor.permute({1, 2, 0, 3}).repeat_interleave(n / tensor.size(2), 1);
}

// [s, s] or, where documents keep apart, [b, 1, s, s]: true where a query [s, b, n, d] must not see
// a key.
at::Tensor hidden_keys(const at::Tensor& query, const at::Tensor& documents) {
  const auto s = query.size(0);
  const at::Tensor future = at::ones({s, s}, query.options().dtype(at::kBool)).triu(1);
  if (!documents.defined()) {
    return future;
  }
  const at::Tensor numbers = documents.t();  // [b, s]
  return future.logical_or(numbers.unsqueeze(2).ne(numbers.unsqueeze(1))).unsqueeze(1);
}

}  // namespace

at::Tensor rotate(const at::Tensor& heads, const at::Tensor& positions, std::int64_t base) {
  const auto size = heads.size(-1);
  const auto options = heads.options().dtype(wide_type(heads));
  const at::Tensor exponent = at::arange(0, size, 2, options) / static_cast<double>(size);
  const at::Tensor position = positions.to(options.dtype()).unsqueeze(-1).unsqueeze(-1);
  const at::Tensor angle =
      position / at::pow(static_cast<double>(base), exponent);  // [s, b, 1, d/2]
  const at::Tensor cosine = angle.cos();
  const at::Tensor sine = angle.sin();
  const at::Tensor wide = heads.to(options.dtype());
  const auto halves = wide.chunk(2, -1);
  return at::cat({halves[0] * cosine - halves[1] * sine, halves[1] * cosine + halves[0] * sine}, -1)
      .to(heads.scalar_type());
}

double CoreAttention::scale_of_scores(const at::Tensor& query) const {
  return 1.0 / std::sqrt(static_cast<double>(query.size(3)));
}

at::Tensor CoreAttention::forward(const at::Tensor& query,
                                  const at::Tensor& key,
                                  const at::Tensor& value,
                                  const TokenPlaces& places) {
  ttrace::Scope scope(*this);
  const at::Tensor q = scope.in(query, 0);
  const at::Tensor k = scope.in(key, 1);
  const at::Tensor v = scope.in(value, 2);
  const double scale = scale_of_scores(q);
  const auto n = query.size(2);
  const at::Tensor kept = kept_weights(n, places, q.device());
  if (cp_.size > 1) {
    return scope.out(ring_attention(q,
                                    k,
                                    v,
                                    {.group = cp_,
                                     .scale = scale,
                                     .documents = places.documents,
                                     .kept = kept,
                                     .dropped = dropout_.probability,
                                     .steps = ring_steps_}));
  }
  const at::Tensor scores = at::matmul(by_head(q, n), by_head(k, n).transpose(-2, -1));
  const at::Tensor masked =
      (scores.to(wide_type(query)) * scale)
          .masked_fill(hidden_keys(query, places.documents),
                       -std::numeric_limits<double>::infinity());  // [b, n, s, s]
  at::Tensor probabilities = masked.softmax(-1).to(query.scalar_type());
  if (kept.defined()) {
    probabilities = drop(probabilities, kept, dropout_.probability);
  }
  const at::Tensor context = at::matmul(probabilities, by_head(v, n));  // [b, n, s, d]
  return scope.out(context.permute({2, 0, 1, 3}).flatten(2));
}

at::Tensor CoreAttention::kept_weights(std::int64_t n,
                                       const TokenPlaces& places,
                                       c10::Device device) const {
  if (dropout_.probability == 0.0) {
    return {};
  }
  ttrace::Scope scope(*this, "dropout");
  const auto first = dropout_.first_head;
  return scope.mask(
      kept_elements(dropout_.path,
                    dropout_.probability,
                    places.draw,
                    {{.size = places.samples.size(0), .indices = places.samples},
                     {.size = dropout_.heads, .indices = at::arange(first, first + n)},
                     {.size = dropout_.sequence, .indices = places.rows},
                     {.size = dropout_.sequence, .indices = at::arange(dropout_.sequence)}})
          .to(device));
}

SelfAttention::SelfAttention(const Blueprint& blueprint, const std::string& path)
    : parallel_(blueprint.parallel),
      groups_(std::max<std::int64_t>(1, blueprint.model.query_groups / parallel_.parts())),
      heads_per_group_(blueprint.model.heads / parallel_.parts() / groups_),
      shared_heads_(blueprint.model.heads / blueprint.model.query_groups),
      head_size_(blueprint.model.head_size()),
      rotary_base_(blueprint.model.rotary_base),
      recomputes_core_(blueprint.recompute.parts == RecomputedParts::kSelective) {
  const auto& model = blueprint.model;
  const Parts& parts = *blueprint.parts;
  const std::int64_t features = model.query_groups * (shared_heads_ + 2) * head_size_;
  linear_qkv_ = register_module(
      "linear_qkv", parts.column(model.hidden, features, blueprint, path + ".linear_qkv"));
  const WeightDropout dropout{.probability = model.attention_dropout,
                              .path = path + ".core_attention.dropout",
                              .first_head = parallel_.part() * groups_ * heads_per_group_,
                              .heads = model.heads,
                              .sequence = model.sequence};
  core_attention_ = register_module(
      "core_attention", parts.core_attention(dropout, blueprint, path + ".core_attention"));
  linear_proj_ = register_module(
      "linear_proj", parts.row(model.hidden, model.hidden, blueprint, path + ".linear_proj"));
}

std::vector<at::Tensor> SelfAttention::split(const at::Tensor& mixed) const {
  const auto s = mixed.size(0);
  const auto b = mixed.size(1);
  const bool shares_group = heads_per_group_ < shared_heads_;
  at::Tensor features = shares_group ? gather_features(mixed, parallel_) : mixed;
  features = features.view({s, b, -1, shared_heads_ + 2, head_size_});  // by group
  std::int64_t first_head = 0;                                          // within the group
  if (shares_group) {
    const std::int64_t ranks = shared_heads_ / heads_per_group_;  // that share a group
    features = features.narrow(2, parallel_.part() / ranks, 1);
    first_head = parallel_.part() % ranks * heads_per_group_;
  }
  return {features.narrow(3, first_head, heads_per_group_)
              .reshape({s, b, groups_ * heads_per_group_, head_size_}),
          features.select(3, shared_heads_),
          features.select(3, shared_heads_ + 1)};
}

at::Tensor SelfAttention::positions(const TokenPlaces& places) const {
  return places.positions;
}

at::Tensor SelfAttention::turn(const at::Tensor& heads, const at::Tensor& positions) const {
  return rotate(heads, positions, rotary_base_);
}

at::Tensor SelfAttention::forward(const at::Tensor& input, const TokenPlaces& places) {
  std::vector<at::Tensor> inputs = split(linear_qkv_->forward(input));
  const at::Tensor turned_by = positions(places);
  inputs[0] = turn(inputs[0], turned_by);
  inputs[1] = turn(inputs[1], turned_by);
  const auto attend = [core = core_attention_.get(), places](const std::vector<at::Tensor>& qkv) {
    return core->forward(qkv[0], qkv[1], qkv[2], places);
  };
  return linear_proj_->forward(recomputes_core_ ? recompute(inputs, attend) : attend(inputs));
}

}  // namespace megatron_mini
