#include "experts.h"

#include "mlp.h"

#include <ATen/ATen.h>

namespace megatron_mini {

ExpertLinear::ExpertLinear(std::int64_t inputs, std::int64_t outputs, c10::Device device) {
  weight_ = register_parameter("weight", at::zeros({outputs, inputs}, device));
  bias_ = register_parameter("bias", at::zeros({outputs}, device));
}

at::Tensor ExpertLinear::forward(const at::Tensor& rows,
                                 const ttrace::Rows& places,
                                 bool adds_bias) {
  ttrace::Scope scope(*this);
  const at::Tensor x = scope.in(rows, places);
  // Where it is not added its gradient is 0, not missing.
  const at::Tensor bias = adds_bias ? bias_ : bias_ * 0.0;
  return scope.out(at::linear(x, weight_, bias), places);
}

Expert::Expert(const Blueprint& blueprint)
    : activation_(blueprint.model.activation), is_first_(blueprint.parallel.etp.rank == 0) {
  const auto& model = blueprint.model;
  const std::int64_t width = model.ffn / blueprint.parallel.etp.size;
  const c10::Device device = blueprint.parallel.device;
  linear_fc1_ = register_module(
      "linear_fc1", std::make_shared<ExpertLinear>(model.hidden, model.gates() * width, device));
  linear_fc2_ =
      register_module("linear_fc2", std::make_shared<ExpertLinear>(width, model.hidden, device));
}

at::Tensor Expert::forward(const at::Tensor& rows, const ttrace::Rows& places) {
  const at::Tensor wide = linear_fc1_->forward(rows, places, true);  // [m, gates * f/etp]
  at::Tensor active;                                                 // [m, f/etp]
  {
    ttrace::Scope scope(*this, "activation");
    active = scope.out(activate(scope.in(wide, places), activation_), places);
  }
  return linear_fc2_->forward(active, places, adds_output_bias());
}

}  // namespace megatron_mini
