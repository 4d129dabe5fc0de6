// Sums over the parts of a tensor that ranks hold.
//
// Thread-safety: free functions without shared state.
#pragma once

#include "analysis/align/tensor_pair.h"
#include "trace/merge/merge.h"
#include "trace/sums/slices.h"

#include <ttrace/placement.h>

#include <cstdint>
#include <span>
#include <vector>

namespace ttrace {

// Logical elements that a placement holds.
[[nodiscard]] std::int64_t elements_of(const Placement& placement);

// The parts of a tensor that ranks hold; replicas and addends of one region are one part.
struct ShardSums {
  const Placement* placement = nullptr;  // of the first of the ranks
  std::vector<int> ranks;
  SliceSums sums;
};

// Sums over the logical elements of each rank's placement: of `slices`, those of `pair`, where one
// dimension alone is cut. Requires: placements within the pair's shape.
[[nodiscard]] std::vector<ShardSums> sum_shards(const TensorPair& pair,
                                                const Slices& slices,
                                                std::span<const Shard> shards);

}  // namespace ttrace
