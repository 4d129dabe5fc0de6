// Which layers a pipeline stage holds.
//
// Without other wishes all chunks of all stages have equally many. The first and the last stage may
// have a number of their own; what is left is spread evenly over the others. A stage's layers are
// spread evenly over its chunks, and virtual stage chunk * stages + stage follows the one before
// it.
//
// Source: Megatron-LM, core/transformer/transformer_layer.py, get_transformer_layer_offset.
//
// Thread-safety: free functions without shared state.
#pragma once

#include "parallel.h"

#include <cstdint>

namespace megatron_mini {

struct LayerRange {
  std::int64_t first = 0;  // global number
  std::int64_t count = 0;

  bool operator==(const LayerRange&) const = default;
};

// Throws UsageError where `layers` layers cannot be spread so.
void check_stages(std::int64_t layers, const Parallel& parallel);

// Requires: check_stages() lets it pass.
[[nodiscard]] LayerRange layers_of(std::int64_t layers, const Parallel& parallel, int chunk);

}  // namespace megatron_mini
