// A planted bug: weights that are saved and loaded in different orders.
//
// Thread-safety: free function without shared state.
#pragma once

#include "gpt_model.h"
#include "parallel.h"

#include <vector>

namespace megatron_mini {

// Parameters through a checkpoint in memory. linear_fc1 is saved as the shards of the ranks of tp
// one after another, each of gate and up rows, and loaded as if all gate rows came before all up
// rows. All ranks.
void save_and_load(const std::vector<ModelParameter>& parameters, const Group& tp);

}  // namespace megatron_mini
