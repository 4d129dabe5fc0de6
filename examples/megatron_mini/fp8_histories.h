// The end of a step for delayed FP8 scales.
#pragma once

#include "parallel.h"

#include <torch/nn/module.h>

namespace megatron_mini {

// Shares the amaxes that all linears of the model collected in this step and rolls their histories.
// All ranks with the same part of the model call.
void roll_fp8_histories(const torch::nn::Module& model, const Parallel& parallel);

}  // namespace megatron_mini
