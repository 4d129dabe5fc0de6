// All sums over pairs of tensors of one shape, in one walk over their bytes.
//
// The bits are those of compare() and sum_slices().
//
// Thread-safety: values and free functions without shared state; call from any thread.
#pragma once

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

}  // namespace ttrace
