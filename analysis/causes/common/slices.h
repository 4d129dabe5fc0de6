// The finding cut into all its slices (SliceChoice::kAll), and what sentences say of a few of them.
//
// Thread-safety: free functions without shared state.
#pragma once

#include "analysis/causes/common/evidence.h"
#include "trace/base/index_set.h"
#include "trace/sums/slices.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace ttrace {

// "dimension 1", "rows"
[[nodiscard]] std::string name_of(const Slicing& slicing);

// In the order in which causes are sought: dimensions from the last to the first, then rows.
[[nodiscard]] std::vector<Slicing> last_first(std::vector<Slicing> slicings);

// The norm of the error outside of the ascending `slices`.
[[nodiscard]] double error_outside(std::span<const SliceSums> sums,
                                   const std::vector<std::int64_t>& slices);

// The numbers as runs of neighbours.
[[nodiscard]] IndexSet runs_of(const std::vector<std::int64_t>& numbers);

// "3, 8-15, 40, 42 and 4 more"
[[nodiscard]] std::string ranges_text(const IndexSet& runs);

// The candidate's ranks that hold any of the ascending `slices` along `dim`.
[[nodiscard]] std::vector<int> holders_of(const Evidence& evidence,
                                          std::size_t dim,
                                          const std::vector<std::int64_t>& slices);

// ", held by ranks 0, 2 (cp rank 0)": the candidate's ranks that hold any of the ascending `slices`
// along `dim`, and their place on axes that tells them from the others; empty where all ranks that
// hold the tensor do.
[[nodiscard]] std::string holders_text(const Evidence& evidence,
                                       std::size_t dim,
                                       const std::vector<std::int64_t>& slices);

}  // namespace ttrace
