// A tensor cut into slices: along one dimension, or into the rows of all leading dimensions.
//
// Thread-safety: free functions without shared state.
#pragma once

#include "analysis/causes/common/evidence.h"
#include "trace/sums/slices.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace ttrace {

struct SliceCut {
  std::size_t dim = 0;
  bool rows = false;  // slices are rows [..., h]
  SliceView view;

  [[nodiscard]] std::string name() const;  // "dimension 1", "rows"
};

// All of a tensor: its dimensions from the last to the first, then its rows if it has several
// dimensions.
[[nodiscard]] std::vector<SliceCut> cuts_of(const std::vector<std::int64_t>& shape);

// By slice; only the squared norms of the error and of the reference.
[[nodiscard]] std::vector<SliceSums> sum_slices(const Sides& sides, const SliceView& view);

// The norm of the error outside of the ascending `slices`.
[[nodiscard]] double error_outside(const std::vector<SliceSums>& sums,
                                   const std::vector<std::int64_t>& slices);

// Runs of neighbours among ascending numbers.
[[nodiscard]] std::int64_t runs_of(const std::vector<std::int64_t>& numbers);

// "3, 8-15, 40 and 4 more" of ascending numbers.
[[nodiscard]] std::string ranges_text(const std::vector<std::int64_t>& numbers);

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
