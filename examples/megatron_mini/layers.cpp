#include "layers.h"

#include "wide_type.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace megatron_mini {

namespace {

std::shared_ptr<Fp8Linear> make_fp8(LinearSplit split,
                                    const Blueprint& blueprint,
                                    const std::string& path) {
  return blueprint.fp8 ? blueprint.parts->fp8(split, blueprint, path) : nullptr;
}

// Ranks that have all computed the whole have nothing to add up.
SumOverRanks sum_of(const Parallel& parallel) {
  return parallel.is_redundant ? SumOverRanks::kSkipped : SumOverRanks::kDone;
}

}  // namespace

std::int64_t padded_vocabulary(std::int64_t vocabulary, int tp) {
  const std::int64_t unit = std::int64_t{64} * tp;
  return (vocabulary + unit - 1) / unit * unit;
}

LayerNorm::LayerNorm(const Blueprint& blueprint) : epsilon_(blueprint.model.norm_epsilon) {
  weight_ =
      register_parameter("weight", at::ones({blueprint.model.hidden}, blueprint.parallel.device));
  bias_ =
      register_parameter("bias", at::zeros({blueprint.model.hidden}, blueprint.parallel.device));
}

at::Tensor LayerNorm::forward(const at::Tensor& input) {
  ttrace::Scope scope(*this);
  const at::Tensor x = scope.in(input);
  return scope.out(normalise(x).to(x.scalar_type()));
}

at::Tensor LayerNorm::normalise(const at::Tensor& rows) const {
  const auto wide = wide_type(rows);
  const at::Tensor weight = weight_in(wide);  // before the bias: backward goes in this order
  return at::layer_norm(rows.to(wide), weight_.sizes(), weight, bias_in(wide), epsilon_);
}

at::Tensor LayerNorm::weight_in(at::ScalarType type) const {
  return weight_.to(type);
}

at::Tensor LayerNorm::bias_in(at::ScalarType type) const {
  return bias_.to(type);
}

ColumnParallelLinear::ColumnParallelLinear(std::int64_t inputs,
                                           std::int64_t outputs,
                                           const Blueprint& blueprint,
                                           const std::string& path)
    : parallel_(blueprint.parallel), fp8_(make_fp8(LinearSplit::kOutputs, blueprint, path)) {
  const std::int64_t local = outputs / parallel_.parts();
  weight_ = register_parameter("weight", at::zeros({local, inputs}, parallel_.device));
  bias_ = register_parameter("bias", at::zeros({local}, parallel_.device));
}

at::Tensor ColumnParallelLinear::forward(const at::Tensor& input) {
  ttrace::Scope scope(*this);
  const at::Tensor x = scope.in(input);
  if (!fp8_) {
    return scope.out(product(gather_input(x), x, weight_, bias_));
  }
  const at::Tensor mine = fp8_->input(x, scope);
  const at::Tensor whole = fp8_->consumed(gather_input(mine), mine, scope);
  const at::Tensor result = product(whole, mine, fp8_->weight(weight_, scope), {});
  return scope.out(fp8_->product(result, *this) + bias_);
}

at::Tensor ColumnParallelLinear::gather_input(const at::Tensor& mine) const {
  return enter_region(mine, parallel_, sum_of(parallel_));
}

at::Tensor ColumnParallelLinear::product(const at::Tensor& whole,
                                         const at::Tensor& /*mine*/,
                                         const at::Tensor& weight,
                                         const at::Tensor& bias) const {
  return at::linear(whole, weight, bias);
}

RowParallelLinear::RowParallelLinear(std::int64_t inputs,
                                     std::int64_t outputs,
                                     const Blueprint& blueprint,
                                     const std::string& path)
    : parallel_(blueprint.parallel), fp8_(make_fp8(LinearSplit::kInputs, blueprint, path)) {
  const std::int64_t local = inputs / parallel_.parts();
  weight_ = register_parameter("weight", at::zeros({outputs, local}, parallel_.device));
  bias_ = register_parameter("bias", at::zeros({outputs}, parallel_.device));
}

at::Tensor RowParallelLinear::forward(const at::Tensor& input) {
  ttrace::Scope scope(*this);
  return scope.out(output(addend(scope.in(input), scope)));
}

at::Tensor RowParallelLinear::addend(const at::Tensor& input, ttrace::Scope& scope) {
  if (!fp8_) {
    return product(input, weight_);
  }
  const at::Tensor quantised = fp8_->input(input, scope);
  const at::Tensor mine = fp8_->consumed(quantised, quantised, scope);
  return fp8_->product(product(mine, fp8_->weight(weight_, scope)), *this);
}

at::Tensor RowParallelLinear::product(const at::Tensor& input, const at::Tensor& weight) const {
  return at::linear(input, weight);
}

at::Tensor RowParallelLinear::sum_over_ranks(const at::Tensor& addend) const {
  return leave_region(addend, parallel_, sum_of(parallel_));
}

at::Tensor RowParallelLinear::output(const at::Tensor& addend) const {
  return sum_over_ranks(addend) + bias_;
}

VocabularyEmbedding::VocabularyEmbedding(const Blueprint& blueprint)
    : parallel_(blueprint.parallel) {
  const auto& model = blueprint.model;
  const std::int64_t rows =
      padded_vocabulary(model.vocabulary, parallel_.tp.size) / parallel_.tp.size;
  own_ = {.first = rows * parallel_.tp.rank,
          .end = std::min(rows * (parallel_.tp.rank + 1), model.vocabulary)};
  weight_ = register_parameter("weight", at::zeros({rows, model.hidden}, parallel_.device));
}

// A rank looks up the tokens of its rows and contributes zeros for the others.
at::Tensor VocabularyEmbedding::forward(const at::Tensor& tokens) {
  ttrace::Scope scope(*this);
  const auto [first, end] = own_tokens();
  const at::Tensor elsewhere = tokens.lt(first).logical_or(tokens.ge(end));
  const at::Tensor local = (tokens - first).masked_fill(elsewhere, 0);
  // In f32, because the gradient of a frequent token's row is a long sum.
  const at::Tensor rows = at::embedding(weight_.to(wide_type(weight_)), local);
  const at::Tensor addend = without_others(rows, elsewhere).to(weight_.scalar_type());
  return scope.out(leave_region(addend, parallel_));
}

at::Tensor VocabularyEmbedding::without_others(const at::Tensor& rows,
                                               const at::Tensor& elsewhere) const {
  return rows.masked_fill(elsewhere.unsqueeze(-1), 0.0);
}

OutputLayer::OutputLayer(const Blueprint& blueprint, const at::Tensor& tied_weight)
    : parallel_(blueprint.parallel), tied_weight_(tied_weight) {
  if (!is_tied()) {
    const int tp = parallel_.tp.size;
    weight_ = register_parameter(
        "weight",
        at::zeros({padded_vocabulary(blueprint.model.vocabulary, tp) / tp, blueprint.model.hidden},
                  parallel_.device));
  }
}

at::Tensor OutputLayer::forward(const at::Tensor& input) {
  ttrace::Scope scope(*this);
  return scope.out(at::linear(enter_region(scope.in(input), parallel_), weight()));
}

}  // namespace megatron_mini
