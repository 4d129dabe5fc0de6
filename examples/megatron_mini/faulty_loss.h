// Planted bugs of the weight that a micro-batch's loss has in its step.
//
// Thread-safety: free functions without shared state.
#pragma once

#include "bugs.h"
#include "config.h"
#include "parallel.h"
#include "text_data.h"

namespace megatron_mini {

// What the loss that a rank goes backward from is multiplied by, 1 without a bug. `microbatch`: of
// which `sample` is not looked at.
[[nodiscard]] double loss_factor(const Bugs& bugs,
                                 const Config& config,
                                 const Parallel& parallel,
                                 const TextData& text,
                                 const SampleKey& microbatch);

}  // namespace megatron_mini
