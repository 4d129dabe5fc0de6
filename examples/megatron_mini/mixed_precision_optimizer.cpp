#include "mixed_precision_optimizer.h"

#include <ATen/ATen.h>

#include <utility>

namespace megatron_mini {

MixedPrecisionOptimizer::MixedPrecisionOptimizer(std::vector<ModelParameter> parameters,
                                                 const std::vector<OwnedPart>& parts,
                                                 const std::vector<at::Tensor>& gradients,
                                                 const OptimizerConfig& config)
    : parameters_(std::move(parameters)), parts_(parts), gradients_(gradients) {
  std::vector<at::Tensor> matrices;
  std::vector<at::Tensor> vectors;
  for (const OwnedPart& part : parts_) {
    const at::Tensor& parameter = parameters_[part.parameter].tensor;
    values_.push_back(part.of(parameter.detach()));
    const bool is_bf16 = parameter.scalar_type() == at::kBFloat16;
    masters_.push_back(is_bf16 ? values_.back().to(at::kFloat) : values_.back());
    (parameter.dim() >= 2 ? matrices : vectors).push_back(masters_.back());
  }
  const auto options = [] { return std::make_unique<torch::optim::AdamWOptions>(); };
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.emplace_back(std::move(matrices), options());
  groups.emplace_back(std::move(vectors), options());
  adamw_ = std::make_unique<torch::optim::AdamW>(groups);
  use(config);
}

void MixedPrecisionOptimizer::use(const OptimizerConfig& config) {
  double decay = config.weight_decay;  // of the first group, which are the matrices
  for (auto& group : adamw_->param_groups()) {
    static_cast<torch::optim::AdamWOptions&>(group.options())
        .lr(config.learning_rate)
        .betas({config.beta1, config.beta2})
        .eps(config.epsilon)
        .weight_decay(decay);
    decay = 0.0;
  }
}

bool MixedPrecisionOptimizer::has_copy(std::size_t i) const {
  return !masters_[i].is_same(values_[i]);
}

void MixedPrecisionOptimizer::step() {
  for (std::size_t i = 0; i < masters_.size(); ++i) {
    masters_[i].mutable_grad() = gradients_[i];
  }
  adamw_->step();
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < masters_.size(); ++i) {
    masters_[i].mutable_grad().reset();
    if (has_copy(i)) {
      write_back(i);
    }
  }
}

void MixedPrecisionOptimizer::write_back(std::size_t part) {
  values_[part].copy_(masters_[part]);
}

std::vector<ttrace::OptimizerEntry> MixedPrecisionOptimizer::entries(bool gathered) const {
  std::vector<ttrace::OptimizerEntry> result;
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    const ModelParameter& parameter = parameters_[parts_[i].parameter];
    const auto& state = static_cast<const torch::optim::AdamWParamState&>(
        *adamw_->state().at(masters_[i].unsafeGetTensorImpl()));
    result.push_back({.path = parameter.path,
                      .param = gathered ? parameter.tensor : values_[i],
                      .master = has_copy(i) ? masters_[i] : at::Tensor(),
                      .exp_avg = state.exp_avg(),
                      .exp_avg_sq = state.exp_avg_sq(),
                      .flat_first = parts_[i].first});
  }
  if (gathered) {
    add_parameters_of_others(result);
  }
  return result;
}

// Those that this rank updates nothing of.
void MixedPrecisionOptimizer::add_parameters_of_others(
    std::vector<ttrace::OptimizerEntry>& entries) const {
  auto part = parts_.begin();
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (part != parts_.end() && part->parameter == i) {
      ++part;
    } else {
      ttrace::OptimizerEntry entry;
      entry.path = parameters_[i].path;
      entry.param = parameters_[i].tensor;
      entries.push_back(std::move(entry));
    }
  }
}

}  // namespace megatron_mini
