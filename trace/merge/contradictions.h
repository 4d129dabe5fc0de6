// Checks that the shards of one tensor claim to belong to one tensor.
//
// Thread-safety: free functions without shared state.
#pragma once

#include "trace/merge/merge_finding.h"
#include "trace/merge/shard.h"

#include <ttrace/placement.h>

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

namespace ttrace {

[[nodiscard]] std::optional<std::size_t> sparse_dim(const Placement& placement);

// Logical shapes, sparse dimensions, element types and numbers of addends that differ. Requires: at
// least one shard.
[[nodiscard]] std::vector<MergeFinding> find_contradictions(std::span<const Shard> shards);

}  // namespace ttrace
