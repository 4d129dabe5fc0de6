#include "layers.h"

namespace ttrace::reference {

Embedding::Embedding(std::int64_t vocabulary, std::int64_t hidden, at::ScalarType type)
    : weight(register_parameter("weight", at::empty({vocabulary, hidden}, type))) {}

at::Tensor Embedding::forward(const at::Tensor& tokens) const {
  return at::embedding(weight, tokens);
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
  return at::layer_norm(x, weight.sizes(), weight, bias, epsilon_);
}

}  // namespace ttrace::reference
