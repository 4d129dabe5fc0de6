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

Mlp::Mlp(const ModelConfig& model, at::ScalarType type)
    : linear_fc1(
          register_module("linear_fc1",
                          std::make_shared<Linear>(
                              model.hidden,
                              model.activation == Activation::kSwiglu ? 2 * model.ffn : model.ffn,
                              type))),
      linear_fc2(
          register_module("linear_fc2", std::make_shared<Linear>(model.ffn, model.hidden, type))),
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

}  // namespace ttrace::reference
