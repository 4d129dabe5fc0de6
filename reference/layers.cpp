#include "layers.h"

#include "precision.h"

#include <ttrace/scope.h>

namespace ttrace::reference {
namespace {

at::Tensor quantised(const at::Tensor& x, Fp8Operand& operand, int slot, Scope& scope) {
  if (operand.amax_history().defined()) {
    scope.amax_history(operand.amax_history(), slot);
  }
  const Quantised result = operand.quantise(x);
  scope.scale(result.scale, slot);
  scope.operand(result.values, slot);
  return in_place_of(x, result.values);
}

}  // namespace

Embedding::Embedding(std::int64_t vocabulary, std::int64_t hidden, const at::TensorOptions& options)
    : weight(register_parameter("weight", at::empty({vocabulary, hidden}, options))) {}

at::Tensor Embedding::forward(const at::Tensor& tokens) const {
  Scope scope(*this);
  const auto wide = high_precision(weight.scalar_type());
  return scope.out(at::embedding(weight.to(wide), tokens).to(weight.scalar_type()));
}

Linear::Linear(std::int64_t inputs, std::int64_t outputs, const at::TensorOptions& options)
    : weight(register_parameter("weight", at::empty({outputs, inputs}, options))),
      bias(register_parameter("bias", at::empty({outputs}, options))) {}

at::Tensor Linear::forward(const at::Tensor& x) const {
  return fp8_ ? forward_fp8(x) : at::linear(x, weight, bias);
}

at::Tensor Linear::forward_fp8(const at::Tensor& x) const {
  Scope scope(*this);
  const at::Tensor input = quantised(scope.in(x), fp8_->input, 0, scope);  // [S, B, inputs]
  const at::Tensor factor = quantised(weight, fp8_->weight, 1, scope);     // [outputs, inputs]
  const at::Tensor y = at::matmul(input, factor.t());                      // [S, B, outputs]
  if (y.requires_grad()) {
    // Before it is used for dX and dW. The bias gets its gradient as it comes.
    y.register_hook([this](const at::Tensor& gradient) {
      Scope backward(*this);
      return quantised(gradient, fp8_->gradient, 2, backward);
    });
  }
  return scope.out(y + bias);
}

void Linear::use_fp8(const Fp8Config& config) {
  fp8_ = std::make_unique<Fp8Operands>(config, weight.device());
}

void Linear::end_step() {
  if (fp8_) {
    fp8_->end_step();
  }
}

LayerNorm::LayerNorm(std::int64_t hidden, double epsilon, const at::TensorOptions& options)
    : weight(register_parameter("weight", at::empty({hidden}, options))),
      bias(register_parameter("bias", at::empty({hidden}, options))),
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
