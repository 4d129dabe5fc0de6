// Which ranks work together: tensor parallelism fastest, then data parallelism.
#pragma once

#include "collectives.h"

#include <ttrace/layout.h>

namespace megatron_mini {

struct Parallel {
  Group world;
  Group tp;                        // shares the work on one micro-batch
  Group dp;                        // holds the same part of the model, works on other micro-batches
  bool sequence_parallel = false;  // between tensor-parallel blocks each tp rank holds s / tp rows
};

[[nodiscard]] inline ttrace::Layout layout_of(const Parallel& parallel) {
  ttrace::Layout layout{.rank = parallel.world.rank, .world_size = parallel.world.size, .axes = {}};
  layout.add("tp", parallel.tp.size, parallel.tp.rank);
  if (parallel.sequence_parallel) {
    layout.add("sp", parallel.tp.size, parallel.tp.rank, "tp");
  }
  layout.add("dp", parallel.dp.size, parallel.dp.rank);
  return layout;
}

}  // namespace megatron_mini
