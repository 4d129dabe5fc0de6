// Chooses the kernels that this processor runs.
//
// ttrace::compare always takes the fastest; tests hold all of them against each other.
//
// Thread-safety: free functions without shared state; call from any thread.
#pragma once

#include "trace/sums/statistics_kernel.h"

#include <vector>

namespace ttrace {

// The baseline first, the fastest last.
[[nodiscard]] std::vector<const StatisticsKernel*> available_kernels();

}  // namespace ttrace
