#include "mlp.h"

#include <ttrace/scope.h>

namespace ttrace::reference {

at::Tensor activate(const at::Tensor& x, Activation activation) {
  if (activation == Activation::kGelu) {
    return at::gelu(x);
  }
  const std::int64_t f = x.size(-1) / 2;
  const at::Tensor gate = x.narrow(-1, 0, f);  // [S, B, F]
  const at::Tensor up = x.narrow(-1, f, f);    // [S, B, F]
  return at::silu(gate) * up;
}

Mlp::Mlp(const ModelConfig& model, std::int64_t ffn, const at::TensorOptions& options)
    : linear_fc1(register_module(
          "linear_fc1",
          std::make_shared<Linear>(
              model.hidden, model.activation == Activation::kSwiglu ? 2 * ffn : ffn, options))),
      linear_fc2(
          register_module("linear_fc2", std::make_shared<Linear>(ffn, model.hidden, options))),
      activation_(model.activation) {}

at::Tensor Mlp::forward(const at::Tensor& x) const {
  const at::Tensor wide = linear_fc1->forward(x);  // [S, B, F or 2F]
  at::Tensor active;                               // [S, B, F]
  {
    Scope scope(*this, "activation");
    active = scope.out(activate(scope.in(wide), activation_));
  }
  return linear_fc2->forward(active);
}

at::Tensor Mlp::forward(const at::Tensor& x, const Rows& places) const {
  const auto traced = [&](const Linear& linear, const at::Tensor& input) {
    Scope scope(linear);
    return scope.out(linear.forward(scope.in(input, places)), places);
  };
  const at::Tensor wide = traced(*linear_fc1, x);  // [n, F or 2F]
  at::Tensor active;                               // [n, F]
  {
    Scope scope(*this, "activation");
    active = scope.out(activate(scope.in(wide, places), activation_), places);
  }
  return traced(*linear_fc2, active);
}

}  // namespace ttrace::reference
