// All sums over pairs of tensors of one shape, in one walk over their bytes.
//
// The bits are those of compare() and sum_slices().
//
// Thread-safety: values and free functions without shared state; call from any thread.
#pragma once

#include "trace/sums/sketch.h"
#include "trace/sums/slices.h"
#include "trace/sums/statistics.h"

#include <cstdint>
#include <span>
#include <vector>

namespace ttrace {

struct Moments {
  Statistics all;
  Slices slices;  // without slicings where they were not asked for
};

struct SummedPair {
  TensorBytes reference;
  TensorBytes other;
  bool with_slices = false;
};

// Row-major tensors of one shape; a tensor may be in several pairs.
[[nodiscard]] std::vector<Moments> moments_of(std::span<const std::int64_t> shape,
                                              std::span<const SummedPair> pairs);

// What two sketches of one grid say of their tensors: of the difference estimates, from the cells;
// slices are those of the cells, which hold a row or a column of blocks each. <r, d> follows from
//
//   2 <r, d> = ||c||^2 - ||r||^2 - ||d||^2
//
// in which the estimate of ||d||^2 counts in second order alone. Of a sum of addends, whose squares
// nobody knows, it is not known: then slices.all has no squares of the reference. The largest
// difference is that of a block's signed sum. All elements count as different unless the digests
// are equal.
[[nodiscard]] Moments moments_of(const Sketch& reference, const Sketch& other);

}  // namespace ttrace
