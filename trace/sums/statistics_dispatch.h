// Which kernels this processor runs, and a comparison by a given one.
//
// ttrace::compare always takes the fastest; tests hold all of them against each other.
//
// Thread-safety: free functions without shared state; call from any thread.
#pragma once

#include "trace/sums/statistics.h"
#include "trace/sums/statistics_kernel.h"

#include <ttrace/element_type.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ttrace {

struct TensorBytes {
  ElementType type;
  const std::byte* bytes;  // contiguous, at any alignment
};

// The baseline first, the fastest last.
[[nodiscard]] std::vector<const StatisticsKernel*> available_kernels();

// What ttrace::compare returns, computed by `kernel`.
[[nodiscard]] Statistics compare_with(const StatisticsKernel& kernel,
                                      const TensorBytes& reference,
                                      const TensorBytes& candidate,
                                      std::int64_t count,
                                      std::int64_t first = 0);

}  // namespace ttrace
