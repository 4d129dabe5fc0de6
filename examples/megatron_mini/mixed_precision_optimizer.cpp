#include "mixed_precision_optimizer.h"

#include <ATen/ATen.h>

#include <utility>

namespace megatron_mini {

MixedPrecisionOptimizer::MixedPrecisionOptimizer(std::vector<ModelParameter> parameters,
                                                 std::vector<at::Tensor> gradients,
                                                 const OptimizerConfig& config,
                                                 const Bugs& bugs)
    : parameters_(std::move(parameters)), gradients_(std::move(gradients)), bugs_(bugs) {
  std::vector<at::Tensor> matrices;
  std::vector<at::Tensor> vectors;
  for (const auto& parameter : parameters_) {
    const bool is_bf16 = parameter.tensor.scalar_type() == at::kBFloat16;
    masters_.push_back(is_bf16 ? parameter.tensor.detach().to(at::kFloat) : parameter.tensor);
    (parameter.tensor.dim() >= 2 ? matrices : vectors).push_back(masters_.back());
  }
  const auto options = [&](double decay) {
    return std::make_unique<torch::optim::AdamWOptions>(
        torch::optim::AdamWOptions(config.learning_rate)
            .betas({config.beta1, config.beta2})
            .eps(config.epsilon)
            .weight_decay(decay));
  };
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.emplace_back(std::move(matrices), options(config.weight_decay));
  groups.emplace_back(std::move(vectors), options(0.0));
  adamw_ = std::make_unique<torch::optim::AdamW>(groups);
}

bool MixedPrecisionOptimizer::has_copy(std::size_t i) const {
  return !masters_[i].is_same(parameters_[i].tensor);
}

void MixedPrecisionOptimizer::step() {
  for (std::size_t i = 0; i < masters_.size(); ++i) {
    masters_[i].mutable_grad() = gradients_[i];
  }
  adamw_->step();
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < masters_.size(); ++i) {
    masters_[i].mutable_grad().reset();
    const bool is_stale = bugs_.on("stale-parameter") &&
                          parameters_[i].path == "decoder.layers.1.mlp.linear_fc1.weight";
    if (has_copy(i) && !is_stale) {
      parameters_[i].tensor.copy_(masters_[i]);
    }
  }
}

std::vector<ttrace::OptimizerEntry> MixedPrecisionOptimizer::entries() const {
  std::vector<ttrace::OptimizerEntry> result;
  for (std::size_t i = 0; i < masters_.size(); ++i) {
    const auto& state = static_cast<const torch::optim::AdamWParamState&>(
        *adamw_->state().at(masters_[i].unsafeGetTensorImpl()));
    result.push_back({.path = parameters_[i].path,
                      .param = parameters_[i].tensor,
                      .master = has_copy(i) ? masters_[i] : at::Tensor(),
                      .exp_avg = state.exp_avg(),
                      .exp_avg_sq = state.exp_avg_sq()});
  }
  return result;
}

}  // namespace megatron_mini
