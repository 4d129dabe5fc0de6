// Which ranks work together, and what this one computes on: tensor parallelism fastest, then
// context parallelism, then data parallelism, then pipeline stages, as in Megatron-LM. Experts
// divide the ranks of a stage in another way.
#pragma once

#include "collectives.h"

#include <ttrace/layout.h>

#include <c10/core/Device.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace megatron_mini {

// How the ranks of tp work on a layer that is cut by a smaller TP degree, where those that this
// leaves free divide the samples of a micro-batch.
struct LayerRanks {
  Group tp;       // shares the work on the same samples; samples.size ranks lie between two of them
  Group samples;  // holds the same part of the layer, works on other samples; consecutive ranks
  Group dp_cp;    // all ranks with the same part of the layer
};

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
  std::map<int, LayerRanks> layers{};  // by TP degree: those below that of tp that layers have
  // Of what is built with this, where it is such a layer: tp and dp_cp are then the layer's.
  std::optional<LayerRanks> own{};
  c10::Device device = at::kCPU;  // that this rank's model is on

  // Into how many parts heads and features are split, and this rank's part.
  [[nodiscard]] int parts() const { return is_redundant ? 1 : tp.size; }
  [[nodiscard]] int part() const { return is_redundant ? 0 : tp.rank; }

  // The same ranks, divided once more for experts: etp fastest, then ep, then edp, so that
  // etp * ep * edp = tp * cp * dp. Without names where the model has none.
  Group etp{};     // shares the work on the same rows: parts of the same experts
  Group ep{};      // has other experts
  Group edp{};     // all ranks with the same part of the same experts
  Group etp_ep{};  // one of everything that experts have; these ranks exchange tokens

  [[nodiscard]] bool is_first_stage() const { return pp.rank == 0; }
  [[nodiscard]] bool is_last_stage() const { return pp.rank + 1 == pp.size; }
  // Whether this rank's chunk is the one that micro-batches enter, or leave.
  [[nodiscard]] bool begins(int chunk) const { return is_first_stage() && chunk == 0; }
  [[nodiscard]] bool ends(int chunk) const { return is_last_stage() && chunk + 1 == chunks; }
  // Whether no two ranks of tp * cp * dp hold the same token between tensor-parallel blocks. If
  // not, those of tp hold the same ones, and etp is tp.
  [[nodiscard]] bool has_distinct_tokens() const { return sequence_parallel || tp.size == 1; }
  // Whether experts get tokens of several micro-batches at once: ranks of etp and ep are at
  // different ones.
  [[nodiscard]] bool mixes_microbatches() const {
    return replica_size() % (etp.size * ep.size) != 0;
  }
  // Ranks that share a micro-batch.
  [[nodiscard]] int replica_size() const { return tp.size * cp.size; }
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

// Axes of ranks that divide the work on a layer: tp; sp, with sequence parallelism; kv and kv_copy,
// which stand for the same ranks as key and value heads lie on them. `number` ends all names.
inline void add_tp_axes(const Group& tp,
                        bool sequence_parallel,
                        std::int64_t query_groups,
                        const std::string& number,
                        ttrace::Layout& layout) {
  layout.add("tp" + number, tp.size, tp.rank);
  if (sequence_parallel) {
    layout.add("sp" + number, tp.size, tp.rank, "tp" + number);
  }
  const KeyValueShare share = key_value_share(query_groups, tp.size);
  if (share.copies > 1) {
    layout.add("kv" + number, share.parts, tp.rank / share.copies);
    layout.add("kv_copy" + number, share.copies, tp.rank % share.copies);
  } else if (share.parts > 1) {
    layout.add("kv" + number, share.parts, tp.rank, "tp" + number);
  }
}

// A layer of TP degree 2 that divides the ranks in a way of its own uses axis tp2 where dims say
// tp, and so on; ldp2 are the ranks with other samples.
inline constexpr std::array kLayerAxes = {"tp", "sp", "kv", "kv_copy", "ldp"};

// Axes etp and ep, and ecp: ranks that share a micro-batch and hold the same experts; they have
// other rows. Where the ranks of etp and ep belong to several micro-batches there is no such axis.
inline void add_expert_axes(const Parallel& parallel, ttrace::Layout& layout) {
  layout.add("etp", parallel.etp.size, parallel.etp.rank);
  layout.add("ep", parallel.ep.size, parallel.ep.rank);
  const int replica = parallel.replica_size();
  const int holders = parallel.etp.size * parallel.ep.size;
  const int ecp = parallel.mixes_microbatches() ? 1 : replica / holders;
  layout.add("ecp", ecp, parallel.edp.rank % ecp);
}

[[nodiscard]] inline ttrace::Layout layout_of(const Parallel& parallel, std::int64_t query_groups) {
  ttrace::Layout layout{.rank = parallel.world.rank, .world_size = parallel.world.size, .axes = {}};
  add_tp_axes(parallel.tp, parallel.sequence_parallel, query_groups, "", layout);
  for (const auto& [degree, ranks] : parallel.layers) {
    const std::string number = std::to_string(degree);
    add_tp_axes(ranks.tp, parallel.sequence_parallel, query_groups, number, layout);
    layout.add("ldp" + number, ranks.samples.size, ranks.samples.rank);
  }
  layout.add("cp", parallel.cp.size, parallel.cp.rank);
  layout.add("dp", parallel.dp.size, parallel.dp.rank);
  layout.add("pp", parallel.pp.size, parallel.pp.rank);
  if (parallel.ties_stages) {
    // Two stages have different addends of the tied weight; the others have none.
    constexpr int kTiedStages = 2;
    layout.add("tied", kTiedStages, parallel.is_last_stage() ? 1 : 0);
  }
  if (!parallel.etp_ep.name.empty()) {
    add_expert_axes(parallel, layout);
  }
  return layout;
}

}  // namespace megatron_mini
