#include "attention.h"

#include "faulty_positions.h"
#include "ring_attention.h"

#include <ttrace/scope.h>

#include <ATen/ATen.h>

#include <cmath>
#include <limits>

namespace megatron_mini {

namespace {

// The type in which sensitive parts are computed.
at::ScalarType wide_type(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

// [s, b, heads, d] -> [b, n, s, d], every key/value head repeated for the n / heads queries of its
// group.
at::Tensor by_head(const at::Tensor& tensor, std::int64_t n) {
  return tensor.permute({1, 2, 0, 3}).repeat_interleave(n / tensor.size(2), 1);
}

// [s, s] or, where documents keep apart, [b, 1, s, s]: true where a query must not see a key.
at::Tensor hidden_keys(std::int64_t s, const at::Tensor& documents) {
  const at::Tensor future = at::ones({s, s}, at::kBool).triu(1);
  if (!documents.defined()) {
    return future;
  }
  const at::Tensor numbers = documents.t();  // [b, s]
  return future.logical_or(numbers.unsqueeze(2).ne(numbers.unsqueeze(1))).unsqueeze(1);
}

}  // namespace

at::Tensor rotate(const at::Tensor& heads,
                  const at::Tensor& positions,
                  std::int64_t base,
                  RotaryPairs pairs) {
  const auto size = heads.size(-1);
  const auto options = heads.options().dtype(wide_type(heads));
  const at::Tensor exponent = at::arange(0, size, 2, options) / static_cast<double>(size);
  const at::Tensor position = positions.to(options.dtype()).unsqueeze(-1).unsqueeze(-1);
  const at::Tensor angle =
      position / at::pow(static_cast<double>(base), exponent);  // [s, b, 1, d/2]
  const at::Tensor cosine = angle.cos();
  const at::Tensor sine = angle.sin();
  const at::Tensor wide = heads.to(options.dtype());
  const bool of_halves = pairs == RotaryPairs::kOfHalves;
  const auto parts = of_halves ? wide.chunk(2, -1) : wide.unflatten(-1, {size / 2, 2}).unbind(-1);
  const std::vector<at::Tensor> turned = {parts[0] * cosine - parts[1] * sine,
                                          parts[1] * cosine + parts[0] * sine};
  return (of_halves ? at::cat(turned, -1) : at::stack(turned, -1).flatten(-2))
      .to(heads.scalar_type());
}

at::Tensor CoreAttention::forward(const at::Tensor& query,
                                  const at::Tensor& key,
                                  const at::Tensor& value,
                                  const at::Tensor& documents) {
  ttrace::Scope scope(*this);
  const at::Tensor q = scope.in(query, 0);
  const at::Tensor k = scope.in(key, 1);
  const at::Tensor v = scope.in(value, 2);
  const double scale = scale_factor_ / std::sqrt(static_cast<double>(query.size(3)));
  if (cp_.size > 1) {
    return scope.out(ring_attention(
        q, k, v, {.group = cp_, .scale = scale, .documents = documents, .bug = ring_bug_}));
  }
  const auto n = query.size(2);
  const at::Tensor scores = at::matmul(by_head(q, n), by_head(k, n).transpose(-2, -1));
  const at::Tensor masked =
      (scores.to(wide_type(query)) * scale)
          .masked_fill(hidden_keys(query.size(0), documents),
                       -std::numeric_limits<double>::infinity());  // [b, n, s, s]
  const at::Tensor probabilities = masked.softmax(-1).to(query.scalar_type());
  const at::Tensor context = at::matmul(probabilities, by_head(v, n));  // [b, n, s, d]
  return scope.out(context.permute({2, 0, 1, 3}).flatten(2));
}

namespace {

// What the scale of an attention's scores is multiplied by. With the bug: (0.1 ln 40 + 1)^2, the
// factor of a context that YaRN made 40 times as long.
double softmax_scale_factor(const Bugs& bugs, const std::string& path) {
  const bool wrong = bugs.on("softmax-scale") && path == "decoder.layers.1.self_attention";
  return wrong ? bugs.size(1.87) : 1.0;
}

}  // namespace

SelfAttention::SelfAttention(const Blueprint& blueprint, const std::string& path)
    : groups_(blueprint.model.query_groups / blueprint.parallel.tp.size),
      heads_per_group_(blueprint.model.heads / blueprint.model.query_groups),
      head_size_(blueprint.model.head_size()),
      rotary_base_(blueprint.model.rotary_base),
      rotary_pairs_(blueprint.bugs.on("rotary-interleaved") ? RotaryPairs::kNeighbours
                                                            : RotaryPairs::kOfHalves),
      cp_(blueprint.parallel.cp),
      bugs_(blueprint.bugs) {
  const auto& model = blueprint.model;
  linear_qkv_ = register_module("linear_qkv",
                                std::make_shared<ColumnParallelLinear>(
                                    model.hidden,
                                    model.query_groups * (heads_per_group_ + 2) * head_size_,
                                    blueprint,
                                    path + ".linear_qkv"));
  core_attention_ =
      register_module("core_attention",
                      std::make_shared<CoreAttention>(blueprint.parallel.cp,
                                                      softmax_scale_factor(blueprint.bugs, path)));
  core_attention_->plant(ring_bug(blueprint.bugs, path));
  linear_proj_ = register_module("linear_proj",
                                 std::make_shared<RowParallelLinear>(
                                     model.hidden, model.hidden, blueprint, path + ".linear_proj"));
}

at::Tensor SelfAttention::forward(const at::Tensor& input, const TokenPlaces& places) {
  const at::Tensor mixed = linear_qkv_->forward(input);  // [s, b, g * (n/g + 2) * d]
  const auto s = mixed.size(0);
  const auto b = mixed.size(1);
  const auto parts = mixed.view({s, b, groups_, heads_per_group_ + 2, head_size_})
                         .split_with_sizes({heads_per_group_, 1, 1}, 3);
  const at::Tensor query = parts[0].reshape({s, b, groups_ * heads_per_group_, head_size_});
  const at::Tensor key = parts[1].reshape({s, b, groups_, head_size_});
  const at::Tensor value = parts[2].reshape({s, b, groups_, head_size_});
  const at::Tensor positions = rotary_positions(places, cp_, bugs_);
  return linear_proj_->forward(
      core_attention_->forward(rotate(query, positions, rotary_base_, rotary_pairs_),
                               rotate(key, positions, rotary_base_, rotary_pairs_),
                               value,
                               places.documents));
}

}  // namespace megatron_mini
