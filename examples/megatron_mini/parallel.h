// Which ranks work together: tensor parallelism fastest, then context parallelism, then data
// parallelism, then pipeline stages, as in Megatron-LM.
#pragma once

#include "collectives.h"

#include <ttrace/layout.h>

#include <cstdint>
#include <optional>

namespace megatron_mini {

struct Parallel {
  Group world;
  Group tp;       // shares the work on one micro-batch: parts of the model, the same tokens
  Group cp{};     // shares the work on one micro-batch: the same part of the model, other tokens
  Group dp;       // holds the same part of the model, works on other micro-batches
  Group dp_cp{};  // all ranks with the same part of the model
  Group pp{};     // the stages that one micro-batch goes through
  Group embedding{};               // first and last stage, where both hold the tied embedding
  bool sequence_parallel = false;  // between tensor-parallel blocks tp ranks divide the rows of cp
  bool ties_stages = false;        // whether there are such stages
  int chunks = 1;                  // virtual stages on each rank
  std::optional<std::int64_t> first_stage_layers{};  // where it has a number of its own
  std::optional<std::int64_t> last_stage_layers{};
  bool zero1 = false;  // dp_cp ranks divide the optimizer: each updates its part of the buckets

  [[nodiscard]] bool is_first_stage() const { return pp.rank == 0; }
  [[nodiscard]] bool is_last_stage() const { return pp.rank + 1 == pp.size; }
  // Whether this rank's chunk is the one that micro-batches enter, or leave.
  [[nodiscard]] bool begins(int chunk) const { return is_first_stage() && chunk == 0; }
  [[nodiscard]] bool ends(int chunk) const { return is_last_stage() && chunk + 1 == chunks; }
};

[[nodiscard]] inline ttrace::Layout layout_of(const Parallel& parallel) {
  ttrace::Layout layout{.rank = parallel.world.rank, .world_size = parallel.world.size, .axes = {}};
  layout.add("tp", parallel.tp.size, parallel.tp.rank);
  if (parallel.sequence_parallel) {
    layout.add("sp", parallel.tp.size, parallel.tp.rank, "tp");
  }
  layout.add("cp", parallel.cp.size, parallel.cp.rank);
  layout.add("dp", parallel.dp.size, parallel.dp.rank);
  layout.add("pp", parallel.pp.size, parallel.pp.rank);
  if (parallel.ties_stages) {
    // Of the tied weight the two stages have different addends; the others have none.
    constexpr int kTiedStages = 2;
    layout.add("tied", kTiedStages, parallel.is_last_stage() ? 1 : 0);
  }
  return layout;
}

}  // namespace megatron_mini
