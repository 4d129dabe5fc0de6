// Which ranks work together: tensor parallelism fastest, then context parallelism, then data
// parallelism, then pipeline stages, as in Megatron-LM.
#pragma once

#include "collectives.h"

#include <ttrace/layout.h>

#include <algorithm>
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
  // Every tp rank computes the whole of what is built with this: a layer of TP degree 1 among
  // others.
  bool is_redundant = false;

  // Into how many parts heads and features are split, and this rank's part.
  [[nodiscard]] int parts() const { return is_redundant ? 1 : tp.size; }
  [[nodiscard]] int part() const { return is_redundant ? 0 : tp.rank; }

  [[nodiscard]] bool is_first_stage() const { return pp.rank == 0; }
  [[nodiscard]] bool is_last_stage() const { return pp.rank + 1 == pp.size; }
  // Whether this rank's chunk is the one that micro-batches enter, or leave.
  [[nodiscard]] bool begins(int chunk) const { return is_first_stage() && chunk == 0; }
  [[nodiscard]] bool ends(int chunk) const { return is_last_stage() && chunk + 1 == chunks; }
};

// How key and value heads, one per query group, lie on tensor-parallel ranks: in `parts`, of which
// each is on `copies` consecutive ranks. With fewer groups than ranks a rank holds one group's key
// and value and some of its queries.
struct KeyValueShare {
  int parts = 1;
  int copies = 1;
};

// Requires: one of `query_groups` and `tp` divides the other.
[[nodiscard]] inline KeyValueShare key_value_share(std::int64_t query_groups, int tp) {
  const int parts = static_cast<int>(std::min<std::int64_t>(query_groups, tp));
  return {.parts = parts, .copies = tp / parts};
}

// Axes kv and kv_copy stand for the tp ranks as key and value heads lie on them.
[[nodiscard]] inline ttrace::Layout layout_of(const Parallel& parallel, std::int64_t query_groups) {
  ttrace::Layout layout{.rank = parallel.world.rank, .world_size = parallel.world.size, .axes = {}};
  layout.add("tp", parallel.tp.size, parallel.tp.rank);
  if (parallel.sequence_parallel) {
    layout.add("sp", parallel.tp.size, parallel.tp.rank, "tp");
  }
  const KeyValueShare share = key_value_share(query_groups, parallel.tp.size);
  if (share.copies > 1) {
    layout.add("kv", share.parts, parallel.tp.rank / share.copies);
    layout.add("kv_copy", share.copies, parallel.tp.rank % share.copies);
  } else if (share.parts > 1) {
    layout.add("kv", share.parts, parallel.tp.rank, "tp");
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
