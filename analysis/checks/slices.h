// Where in a tensor the error lies beyond the noise there: an index of a dimension, a row, a head,
// what a rank holds.
//
// A whole tensor's error hides what is wrong in a few of its rows. For a slice i of n_i of the n
// elements, with v_i = mean_k ||m_k - r||^2 over it and s^2 the same over the whole tensor:
//
//   v    = (K v_i + 5 s^2 n_i / n) / (K + 5)        K passes
//   Q_i  = ||c - r||_i / sqrt(growth v + (2 ulp(max |r|))^2)
//   bound: slice_limit of the tensor's class (limits.h), at least 1.2 x the largest pass;
//   group_limit
//          of heads and shards: their Q is a mean over slices and moves less
//
// A few elements of K passes tell little of how noisy they are, and some slices hardly moved by
// chance; so a slice's own noise is mixed with what a slice of its size has on average. `growth` is
// that of sums over micro-batches, see bounds.h. Of a group of slices v_i adds up; of a rank's part
// it is s^2 times the share of the noise that its indices have in every dimension.
//
// Thread-safety: free functions without shared state.
#pragma once

#include "analysis/align/tensor_pair.h"
#include "analysis/bounds/bounds.h"
#include "trace/merge/merge.h"
#include "trace/sums/slices.h"

#include <ttrace/placement.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace ttrace {

// The part of a tensor that is farthest beyond the noise there, or nearest to its bound; see
// slices.h.
struct SliceComparison {
  std::string where;       // "rows 17:18 of dimension 0"
  std::vector<int> ranks;  // candidate's, that hold it
  double error = 0.0;      // ||c - r|| over it
  double q = 0.0;          // error over its own noise scale
  double bound = 0.0;
  double slice_q = 0.0;    // largest of any row or index of a dimension
  double row_q = 0.0;      // largest of any row, where rows have a limit of their own
  double group_q = 0.0;    // largest of any head, shard or addend
  bool is_addend = false;  // of a sum over ranks, against what the rank's own rows give

  [[nodiscard]] bool beyond() const { return error > bound; }
};

// The check of a part or of a factor with its numbers and place; symptom and sentence are the
// caller's.
[[nodiscard]] Check check_of(const SliceComparison& slice, Question question);
[[nodiscard]] Check check_of(const FactorComparison& factor, Question question);

// ", held by ranks 0, 1,"; empty if the part's name says it.
[[nodiscard]] std::string held_by(const SliceComparison& slice);

[[nodiscard]] Slices sum_slices(const TensorPair& pair);

// Of runs of `size` consecutive slices, as heads are in a dimension of hidden units. Requires: a
// divisor of their number.
[[nodiscard]] std::vector<SliceSums> sum_groups(std::span<const SliceSums> slices,
                                                std::int64_t size);

// What ranks hold of a tensor; replicas and addends of one region are one.
struct ShardSums {
  const Placement* placement = nullptr;  // of the first of the ranks
  std::vector<int> ranks;
  SliceSums sums;
};

// Over the logical elements of each rank's placement. Requires: placements within the pair's shape.
[[nodiscard]] std::vector<ShardSums> sum_shards(const TensorPair& pair,
                                                std::span<const Shard> shards);

// What the parts of a tensor are judged by.
struct SliceContext {
  const SliceBound& bound;
  std::span<const Shard> candidate;
  std::int64_t head = 0;  // indices of the last dimension that make up a head; 0: it has none
};

// The part of largest Q. Returns nothing if the stored noise is not of this shape. `slices` are
// those of `pair`.
[[nodiscard]] std::optional<SliceComparison> worst_slice(const TensorPair& pair,
                                                         const Slices& slices,
                                                         const SliceContext& context);

}  // namespace ttrace
