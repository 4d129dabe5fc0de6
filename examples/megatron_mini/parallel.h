// Which ranks work together: tensor parallelism fastest, then context parallelism, then data
// parallelism, as in Megatron-LM.
#pragma once

#include "collectives.h"

#include <ttrace/layout.h>

namespace megatron_mini {

struct Parallel {
  Group world;
  Group tp;       // shares the work on one micro-batch: parts of the model, the same tokens
  Group cp{};     // shares the work on one micro-batch: the same part of the model, other tokens
  Group dp;       // holds the same part of the model, works on other micro-batches
  Group dp_cp{};  // all ranks with the same part of the model
  bool sequence_parallel = false;  // between tensor-parallel blocks tp ranks divide the rows of cp
  bool zero1 = false;  // dp_cp ranks divide the optimizer: each updates its part of the buckets
};

[[nodiscard]] inline ttrace::Layout layout_of(const Parallel& parallel) {
  ttrace::Layout layout{.rank = parallel.world.rank, .world_size = parallel.world.size, .axes = {}};
  layout.add("tp", parallel.tp.size, parallel.tp.rank);
  if (parallel.sequence_parallel) {
    layout.add("sp", parallel.tp.size, parallel.tp.rank, "tp");
  }
  layout.add("cp", parallel.cp.size, parallel.cp.rank);
  layout.add("dp", parallel.dp.size, parallel.dp.rank);
  return layout;
}

}  // namespace megatron_mini
