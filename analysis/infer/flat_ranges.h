// Finds where the flat ranges of a distributed optimizer begin: every rank has a part of its
// parameter's elements in row-major order, cut anywhere.
//
// If ranks hold one part of the parameter, their ranges usually follow each other. This is tried
// first, then every other beginning.
//
// Thread-safety: free functions without shared state.
#pragma once

#include "trace/merge/merge.h"

#include <ttrace/placement.h>

#include <span>
#include <vector>

namespace ttrace {

struct FlatFits {
  std::vector<FlatRange> ranges;  // by shard; empty if none agrees
  double error = 0.0;             // relative, of all of them at `factor`
  double factor = 1.0;
  bool decided = false;  // by the values: they would not agree elsewhere
};

// `parameters`: where the whole parameter of each shard's rank lies, without a flat range.
// Requires: one-dimensional shards; a reference that has its tensor.
[[nodiscard]] FlatFits find_flat_ranges(std::span<const Shard> shards,
                                        std::span<const Placement> parameters,
                                        const MergeResult& reference);

// The relative error of these ranges, at factor 1.
[[nodiscard]] double flat_error(std::span<const Shard> shards,
                                std::span<const Placement> parameters,
                                std::span<const FlatRange> ranges,
                                const MergeResult& reference);

}  // namespace ttrace
