#include "adamw.h"

#include "precision.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>

#include <cmath>

namespace ttrace::reference {

AdamW::AdamW(const std::vector<NamedTensor>& parameters, const OptimizerConfig& config)
    : config_(config) {
  for (const NamedTensor& parameter : parameters) {
    const at::Tensor& tensor = parameter.tensor;
    OptimizerEntry entry;
    entry.path = parameter.path;
    entry.param = tensor.detach();  // the same storage
    const at::ScalarType type = high_precision(tensor.scalar_type());
    if (type != tensor.scalar_type()) {
      entry.master = entry.param.to(type);
    }
    entry.exp_avg = at::zeros_like(entry.param, entry.param.options().dtype(type));
    entry.exp_avg_sq = at::zeros_like(entry.exp_avg);
    entries_.push_back(std::move(entry));
  }
}

void AdamW::step(const std::vector<NamedTensor>& gradients) {
  const c10::AutoGradMode no_grad(false);
  ++steps_;
  const auto t = static_cast<double>(steps_);
  const double correction1 = 1.0 - std::pow(config_.beta1, t);
  const double correction2 = 1.0 - std::pow(config_.beta2, t);
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    OptimizerEntry& entry = entries_[i];
    const at::Tensor& g = gradients[i].tensor;
    at::Tensor p = entry.master.defined() ? entry.master : entry.param;
    at::Tensor& m = entry.exp_avg;
    at::Tensor& v = entry.exp_avg_sq;

    const bool matrix = p.dim() >= 2;
    if (matrix) {
      p.mul_(1.0 - config_.learning_rate * config_.weight_decay);
    }
    m.mul_(config_.beta1).add_(g, 1.0 - config_.beta1);
    v.mul_(config_.beta2).addcmul_(g, g, 1.0 - config_.beta2);
    const at::Tensor denominator = (v / correction2).sqrt().add_(config_.epsilon);
    p.addcdiv_(m / correction1, denominator, -config_.learning_rate);
    if (entry.master.defined()) {
      entry.param.copy_(entry.master);
    }
  }
}

}  // namespace ttrace::reference
