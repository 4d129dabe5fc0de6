#include "mutants.h"

#include "../error.h"
#include "../layers.h"
#include "../mixed_precision_optimizer.h"
#include "../trainer.h"
#include "../wide_type.h"
#include "attention_faults.h"
#include "fault.h"
#include "loss_faults.h"
#include "norm_faults.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

namespace megatron_mini::faults {

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
  const auto wide = wide_type(input);
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
  at::Tensor factors =
      at::full({input.size(0), input.size(1), 1}, output, input.options().dtype(wide));
  factors[input.size(0) / 2][0].mul_(middle_row);
  return (at::linear(input.to(wide), weight.to(wide)) * factors).to(input.scalar_type());
}

at::Tensor ProductMutant::with_bias(const at::Tensor& sum,
                                    const at::Tensor& bias,
                                    const Parallel& parallel) const {
  if (output <= 1.0 && middle_row == 1.0) {
    return sum + bias;
  }
  const auto wide = wide_type(sum);
  at::Tensor factors = at::full({sum.size(0), sum.size(1), 1}, output, sum.options().dtype(wide));
  const std::int64_t ranks = parallel.sequence_parallel ? parallel.tp.size : 1;
  const std::int64_t first = parallel.sequence_parallel ? sum.size(0) * parallel.tp.rank : 0;
  const std::int64_t middle = sum.size(0) * ranks / 2 - first;  // among this rank's rows
  if (middle >= 0 && middle < sum.size(0)) {
    factors[middle][0].mul_(middle_row);
  }
  return (sum.to(wide) + bias.to(wide) * factors).to(sum.scalar_type());
}

Mutant Mutant::named(const std::string& name, double size, std::int64_t layer) {
  const auto* const found = std::find_if(
      kNames.begin(), kNames.end(), [&](const auto& entry) { return entry.first == name; });
  if (found == kNames.end()) {
    std::string known;
    for (const auto& entry : kNames) {
      known += (known.empty() ? "" : ", ") + std::string(entry.first);
    }
    fail<UsageError>("--mutant is `", name, "`; it must be one of ", known);
  }
  const bool fits = size >= 0.0 && (size <= 1.0 || !is_share(found->second));
  require<UsageError>(fits,
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
  require<UsageError>(!has_layer(mutation_) || (layer_ >= 0 && layer_ < model.layers),
                      "--mutant-layer is ",
                      layer_,
                      ", but the model has layers 0 to ",
                      model.layers - 1);
  require<UsageError>(model.experts == 1,
                      "mutants need a dense model, but this one has model.experts ",
                      model.experts);
  require<UsageError>(mutation_ != Mutation::kPartialSum || tp > 1,
                      "--mutant partial_sum needs --tp 2 or more, not ",
                      tp);
  require<UsageError>(mutation_ != Mutation::kNormGradShard || sequence_parallel,
                      "--mutant norm_grad_shard needs --sp, without which no rank has an addend");
}

std::string Mutant::path_of(const std::string& part) const {
  return "decoder.layers." + std::to_string(layer_) + part;
}

ProductMutant Mutant::of_linear(const std::string& path, const Group& tp) const {
  ProductMutant result;
  const std::string part =
      mutation_ == Mutation::kOperatorScaleProj ? ".self_attention.linear_proj" : ".mlp.linear_fc2";
  if (path != path_of(part)) {
    return result;
  }
  if (mutation_ == Mutation::kOperatorScale || mutation_ == Mutation::kOperatorScaleProj) {
    result.output = 1.0 + size_;
  } else if (mutation_ == Mutation::kPartialSum && tp.rank + 1 == tp.size) {
    result.output = 1.0 - size_;
  } else if (mutation_ == Mutation::kRow) {
    result.middle_row = 1.0 + size_;
  } else if (mutation_ == Mutation::kWeightGrad) {
    result.weight_gradient = 1.0 + size_;
  }
  return result;
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

namespace {

class MutatedLinear : public RowParallelLinear {
 public:
  MutatedLinear(const Mutant& mutant,
                std::int64_t inputs,
                std::int64_t outputs,
                const Blueprint& blueprint,
                const std::string& path)
      : RowParallelLinear(inputs, outputs, blueprint, path),
        mutant_(mutant.of_linear(path, blueprint.parallel.tp)) {}

 protected:
  at::Tensor product(const at::Tensor& input, const at::Tensor& weight) const override {
    return mutant_.acts() ? mutant_.product(input, weight)
                          : RowParallelLinear::product(input, weight);
  }
  at::Tensor output(const at::Tensor& addend) const override {
    return mutant_.with_bias(sum_over_ranks(addend), bias(), parallel());
  }

 private:
  ProductMutant mutant_;
};

class MutatedOptimizer : public MixedPrecisionOptimizer {
 public:
  MutatedOptimizer(const Mutant& mutant,
                   const std::vector<ModelParameter>& parameters,
                   const std::vector<OwnedPart>& parts,
                   const std::vector<at::Tensor>& gradients,
                   const OptimizerConfig& config)
      : MixedPrecisionOptimizer(parameters, parts, gradients, config),
        mutant_(mutant),
        config_(config) {}

  void step() override {
    use(mutant_.optimizer(config_, ++step_));
    MixedPrecisionOptimizer::step();
  }

 private:
  Mutant mutant_;
  OptimizerConfig config_;
  std::int64_t step_ = 0;  // number of the latest, from 1
};

double as_asked(const Size& size,
                const Plan& /*plan*/,
                const Parallel& /*parallel*/,
                const SampleKey& /*microbatch*/) {
  return size(1.0);
}

// The last rank of tp leaves a share of its addend to the gradient out.
void scale_last_addend(Parts& parts, const std::string& meant, double factor) {
  parts.norm = [before = parts.norm, meant, factor](const Blueprint& blueprint,
                                                    const std::string& path) {
    const Group& tp = blueprint.parallel.tp;
    return path == meant && tp.rank + 1 == tp.size
               ? std::make_shared<ScalesWeightGradient>(factor, blueprint)
               : before(blueprint, path);
  };
}

}  // namespace

void Mutant::plant(Parts& parts) const {
  switch (mutation_) {
    case Mutation::kNone:
      break;
    case Mutation::kOperatorScale:
    case Mutation::kOperatorScaleProj:
    case Mutation::kPartialSum:
    case Mutation::kRow:
    case Mutation::kWeightGrad:
      replace<MutatedLinear>(parts.row, *this);
      break;
    case Mutation::kSoftmaxScale:
      replace_at<ScalesScores>(
          path_of(".self_attention.core_attention"), parts.core_attention, 1.0 + size_);
      break;
    case Mutation::kCommonGradFactor:
      replace<ScalesLoss>(parts.trainer, Size(1.0 + size_), &as_asked);
      break;
    case Mutation::kNormGradShard:
      scale_last_addend(parts, path_of(".input_layernorm"), 1.0 - size_);
      break;
    case Mutation::kOptimizerLr:
    case Mutation::kOptimizerWeightDecay:
    case Mutation::kOptimizerBeta1:
    case Mutation::kOptimizerBeta2:
    case Mutation::kOptimizerBiasCorrection:
      replace<MutatedOptimizer>(parts.optimizer, *this);
      break;
  }
}

}  // namespace megatron_mini::faults
