#include "fp8_histories.h"

#include "layers.h"

#include <ATen/ATen.h>

#include <vector>

namespace megatron_mini {

namespace {

// Those that have a history.
std::vector<Fp8Quantiser*> delayed_quantisers(const torch::nn::Module& model) {
  std::vector<Fp8Quantiser*> result;
  const auto add = [&](const Fp8Linear* linear) {
    if (linear == nullptr) {
      return;
    }
    for (const auto& quantiser : linear->quantisers()) {
      if (quantiser->history().defined()) {
        result.push_back(quantiser.get());
      }
    }
  };
  for (const auto& module : model.modules(/*include_self=*/false)) {
    if (const auto* column = module->as<ColumnParallelLinear>()) {
      add(column->fp8());
    } else if (const auto* row = module->as<RowParallelLinear>()) {
      add(row->fp8());
    }
  }
  return result;
}

}  // namespace

void roll_fp8_histories(const torch::nn::Module& model, const Parallel& parallel) {
  const std::vector<Fp8Quantiser*> quantisers = delayed_quantisers(model);
  if (quantisers.empty()) {
    return;
  }
  std::vector<at::Tensor> collected;
  for (const auto* quantiser : quantisers) {
    collected.push_back(quantiser->collected());
  }
  at::Tensor amaxes = at::stack(collected);
  for (const Group& group : {parallel.tp, parallel.dp_cp}) {
    amaxes = all_reduce(amaxes, group, Reduction::kMax);
  }
  for (std::size_t i = 0; i < quantisers.size(); ++i) {
    quantisers[i]->roll(amaxes[static_cast<std::int64_t>(i)]);
  }
}

}  // namespace megatron_mini
