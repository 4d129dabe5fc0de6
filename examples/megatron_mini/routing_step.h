// What routers do at the end of a step: their losses are reported, their biases follow the load.
//
// Thread-safety: none; one training thread.
#pragma once

#include "config.h"
#include "gpt_model.h"
#include "parallel.h"

#include <ttrace/session.h>

#include <vector>

namespace megatron_mini {

// Sums over layers of means over micro-batches, without coefficients; the same on all ranks.
struct RouterLosses {
  double aux_loss = 0.0;
  double z_loss = 0.0;
};

// Sums over all micro-batches and ranks what this model's routers have seen since the last call,
// lets every router balance its biases by the loads, and forgets. All ranks.
RouterLosses finish_routing(const GptModel& model,
                            const ModelConfig& config,
                            std::int64_t micro_batches,
                            const Parallel& parallel);

// The routers' biases, for Step::parameters_updated.
[[nodiscard]] std::vector<ttrace::OptimizerEntry> expert_biases(const GptModel& model);

}  // namespace megatron_mini
