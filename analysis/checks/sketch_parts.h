// What two sketches say beyond sums over all elements: the parts of the tensor, and what is not
// finite.
//
// Thread-safety: free functions without shared state.
#pragma once

#include "analysis/align/matching.h"
#include "analysis/bounds/bounds.h"
#include "analysis/findings/check.h"
#include "trace/merge/shard.h"
#include "trace/sums/sketch.h"
#include "trace/sums/slices.h"

#include <cstdint>
#include <span>
#include <vector>

namespace ttrace {

struct SketchPair {
  Sketch reference;
  Sketch candidate;
};

// The worst block of rows or of columns, head or rank's part, and the factor, where their noise is
// known. Heads of `head` columns and parts of ranks that are not made of whole blocks are left out.
// `slices` are those of the cells (moments.h), `shape` that of the tensor. Requires: the bound came
// from noise.
[[nodiscard]] std::vector<Check> part_checks(const Bounds& bounds,
                                             const Judged& judged,
                                             const SketchPair& sketches,
                                             const Slices& slices,
                                             std::span<const Shard> candidate,
                                             std::int64_t head,
                                             std::span<const std::int64_t> shape);

// Elements that are not finite on one side alone, by their number and places. Whether one is NaN,
// Inf or -Inf, a sketch does not know.
[[nodiscard]] std::vector<Check> finite_checks(const SketchPair& sketches, const Match& match);

}  // namespace ttrace
