#include "mutants.h"

#include <ttrace/error.h>

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

namespace megatron_mini {

namespace {

constexpr std::array<std::pair<std::string_view, Mutation>, 13> kNames = {
    {{"operator_scale", Mutation::kOperatorScale},
     {"operator_scale_proj", Mutation::kOperatorScaleProj},
     {"partial_sum", Mutation::kPartialSum},
     {"softmax_scale", Mutation::kSoftmaxScale},
     {"row", Mutation::kRow},
     {"weight_grad", Mutation::kWeightGrad},
     {"common_grad_factor", Mutation::kCommonGradFactor},
     {"norm_grad_shard", Mutation::kNormGradShard},
     {"optimizer_lr", Mutation::kOptimizerLr},
     {"optimizer_weight_decay", Mutation::kOptimizerWeightDecay},
     {"optimizer_beta1", Mutation::kOptimizerBeta1},
     {"optimizer_beta2", Mutation::kOptimizerBeta2},
     {"optimizer_bias_correction", Mutation::kOptimizerBiasCorrection}}};

bool is_share(Mutation mutation) {
  return mutation == Mutation::kPartialSum || mutation == Mutation::kNormGradShard ||
         mutation == Mutation::kOptimizerBeta1 || mutation == Mutation::kOptimizerBeta2;
}

// Whether it is in one layer.
bool has_layer(Mutation mutation) {
  return mutation != Mutation::kNone && mutation <= Mutation::kNormGradShard &&
         mutation != Mutation::kCommonGradFactor;
}

// A learning rate and an epsilon that make an update with the right bias correction one with the
// correction of another step: lr (m / c1) / (sqrt(v / c2) + epsilon) with c = 1 - beta^t. Decay is
// lr times weight decay and stays.
OptimizerConfig corrected_for(OptimizerConfig config, double step, double wrong_step) {
  const auto ratio = [&](double beta) {
    return (1.0 - std::pow(beta, wrong_step)) / (1.0 - std::pow(beta, step));
  };
  const double of_root = std::sqrt(ratio(config.beta2));
  const double of_rate = of_root / ratio(config.beta1);
  config.learning_rate *= of_rate;
  config.weight_decay /= of_rate;
  config.epsilon *= of_root;
  return config;
}

}  // namespace

at::Tensor ProductMutant::product(const at::Tensor& input, const at::Tensor& weight) const {
  const auto wide = input.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  if (weight_gradient != 1.0) {
    // A copy, so that the hook is not one more on the weight in every micro-batch.
    const at::Tensor copy = weight.to(wide, /*non_blocking=*/false, /*copy=*/true);
    if (copy.requires_grad()) {
      copy.register_hook(
          [factor = weight_gradient](const at::Tensor& gradient) { return gradient * factor; });
    }
    const at::Tensor of_weight = at::linear(input.detach().to(wide), copy);
    const at::Tensor zeros = of_weight - of_weight.detach();
    return (at::linear(input, weight.detach()) + zeros).to(input.scalar_type());
  }
  at::Tensor factors = at::full({input.size(0), input.size(1), 1}, output, wide);
  factors[input.size(0) / 2][0].mul_(middle_row);
  return (at::linear(input.to(wide), weight.to(wide)) * factors).to(input.scalar_type());
}

Mutant Mutant::named(const std::string& name, double size, std::int64_t layer) {
  const auto* const found = std::find_if(
      kNames.begin(), kNames.end(), [&](const auto& entry) { return entry.first == name; });
  if (found == kNames.end()) {
    std::string known;
    for (const auto& entry : kNames) {
      known += (known.empty() ? "" : ", ") + std::string(entry.first);
    }
    TTRACE_THROW(UsageError, "--mutant `", name, "` is none of ", known);
  }
  const bool fits = size >= 0.0 && (size <= 1.0 || !is_share(found->second));
  TTRACE_CHECK(fits,
               UsageError,
               "--mutant-size ",
               size,
               " of ",
               name,
               " must be at least 0",
               is_share(found->second) ? " and at most 1" : "");
  return {found->second, size, layer};
}

std::vector<std::string> Mutant::names() {
  std::vector<std::string> result;
  for (const auto& entry : kNames) {
    result.emplace_back(entry.first);
  }
  return result;
}

void Mutant::check_can_act(const ModelConfig& model, int tp, bool sequence_parallel) const {
  if (mutation_ == Mutation::kNone) {
    return;
  }
  TTRACE_CHECK(!has_layer(mutation_) || (layer_ >= 0 && layer_ < model.layers),
               UsageError,
               "--mutant-layer ",
               layer_,
               " is none of the model's layers 0 to ",
               model.layers - 1);
  TTRACE_CHECK(model.experts == 1,
               UsageError,
               "mutants act in dense models, not in one of model.experts ",
               model.experts);
  TTRACE_CHECK(mutation_ != Mutation::kPartialSum || tp > 1,
               UsageError,
               "--mutant partial_sum needs --tp 2 or more, not ",
               tp);
  TTRACE_CHECK(mutation_ != Mutation::kNormGradShard || sequence_parallel,
               UsageError,
               "--mutant norm_grad_shard needs --sp, without which no rank has an addend");
}

bool Mutant::is_at(Mutation mutation, std::string_view path, std::string_view part) const {
  return mutation_ == mutation &&
         path == "decoder.layers." + std::to_string(layer_) + std::string(part);
}

ProductMutant Mutant::of_linear(std::string_view path, const Group& tp) const {
  ProductMutant result;
  if (is_at(Mutation::kOperatorScale, path, ".mlp.linear_fc2") ||
      is_at(Mutation::kOperatorScaleProj, path, ".self_attention.linear_proj")) {
    result.output = 1.0 + size_;
  } else if (is_at(Mutation::kPartialSum, path, ".mlp.linear_fc2") && tp.rank + 1 == tp.size) {
    result.output = 1.0 - size_;
  } else if (is_at(Mutation::kRow, path, ".mlp.linear_fc2")) {
    result.middle_row = 1.0 + size_;
  } else if (is_at(Mutation::kWeightGrad, path, ".mlp.linear_fc2")) {
    result.weight_gradient = 1.0 + size_;
  }
  return result;
}

double Mutant::softmax_factor(std::string_view path) const {
  return is_at(Mutation::kSoftmaxScale, path, ".self_attention") ? 1.0 + size_ : 1.0;
}

double Mutant::norm_gradient_factor(std::string_view path, const Group& tp) const {
  const bool acts = is_at(Mutation::kNormGradShard, path, "") && tp.rank + 1 == tp.size;
  return acts ? 1.0 - size_ : 1.0;
}

double Mutant::loss_factor() const {
  return mutation_ == Mutation::kCommonGradFactor ? 1.0 + size_ : 1.0;
}

OptimizerConfig Mutant::optimizer(const OptimizerConfig& config, std::int64_t step) const {
  OptimizerConfig result = config;
  switch (mutation_) {
    case Mutation::kOptimizerLr:
      result.learning_rate *= 1.0 + size_;
      break;
    case Mutation::kOptimizerWeightDecay:
      result.weight_decay *= 1.0 + size_;
      break;
    case Mutation::kOptimizerBeta1:
      result.beta1 *= 1.0 - size_;
      break;
    case Mutation::kOptimizerBeta2:
      result.beta2 *= 1.0 - size_;
      break;
    case Mutation::kOptimizerBiasCorrection: {
      const auto right = static_cast<double>(step);
      result = corrected_for(config, right, right * (1.0 + size_));
      break;
    }
    default:
      break;
  }
  return result;
}

}  // namespace megatron_mini
