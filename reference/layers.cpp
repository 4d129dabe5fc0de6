#include "layers.h"

#include "precision.h"

#include <ttrace/scope.h>

namespace ttrace::reference {

Embedding::Embedding(std::int64_t vocabulary, std::int64_t hidden, at::ScalarType type)
    : weight(register_parameter("weight", at::empty({vocabulary, hidden}, type))) {}

at::Tensor Embedding::forward(const at::Tensor& tokens) const {
  Scope scope(*this);
  const auto wide = high_precision(weight.scalar_type());
  return scope.out(at::embedding(weight.to(wide), tokens).to(weight.scalar_type()));
}

Linear::Linear(std::int64_t inputs, std::int64_t outputs, at::ScalarType type)
    : weight(register_parameter("weight", at::empty({outputs, inputs}, type))),
      bias(register_parameter("bias", at::empty({outputs}, type))) {}

at::Tensor Linear::forward(const at::Tensor& x) const {
  return at::linear(x, weight, bias);
}

LayerNorm::LayerNorm(std::int64_t hidden, double epsilon, at::ScalarType type)
    : weight(register_parameter("weight", at::empty({hidden}, type))),
      bias(register_parameter("bias", at::empty({hidden}, type))),
      epsilon_(epsilon) {}

at::Tensor LayerNorm::forward(const at::Tensor& x) const {
  Scope scope(*this);
  const at::Tensor input = scope.in(x);
  const auto wide = high_precision(x.scalar_type());
  const at::Tensor y =
      at::layer_norm(input.to(wide), weight.sizes(), weight.to(wide), bias.to(wide), epsilon_);
  return scope.out(y.to(x.scalar_type()));
}

}  // namespace ttrace::reference
