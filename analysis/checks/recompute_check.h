// Is a recomputed value what the first forward made?
//
// Thread-safety: a free function without shared state.
#pragma once

#include "analysis/findings/verdict.h"
#include "trace/merge/shard.h"

#include <optional>
#include <span>
#include <vector>

namespace ttrace {

struct RecomputeResult {
  std::optional<Comparison> comparison;
  std::vector<Check> checks;
};

// Whether merged shards equal their first forward, or are within what copies may differ by.
[[nodiscard]] RecomputeResult check_recompute(std::span<const Shard> first,
                                              std::span<const Shard> again,
                                              double of_copies);

}  // namespace ttrace
