#include "mlp.h"

#include <ttrace/scope.h>

#include <ATen/ATen.h>

namespace megatron_mini {

at::Tensor activate(const at::Tensor& input, Activation kind) {
  if (kind == Activation::kGelu) {
    return at::gelu(input);
  }
  const auto halves = input.chunk(2, -1);  // this rank's gate and up
  return at::silu(halves[0]) * halves[1];
}

at::Tensor ActivationFunction::forward(const at::Tensor& input) {
  ttrace::Scope scope(*this);
  return scope.out(activate(scope.in(input), kind_));
}

Mlp::Mlp(const Blueprint& blueprint, std::int64_t ffn, const std::string& path) {
  const auto& model = blueprint.model;
  const Parts& parts = *blueprint.parts;
  linear_fc1_ = register_module(
      "linear_fc1",
      parts.column(model.hidden, model.gates() * ffn, blueprint, path + ".linear_fc1"));
  activation_ =
      register_module("activation", std::make_shared<ActivationFunction>(model.activation));
  linear_fc2_ =
      register_module("linear_fc2", parts.row(ffn, model.hidden, blueprint, path + ".linear_fc2"));
}

at::Tensor Mlp::forward(const at::Tensor& input) {
  return linear_fc2_->forward(activation_->forward(linear_fc1_->forward(input)));
}

}  // namespace megatron_mini
