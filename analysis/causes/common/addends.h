// Reading the coefficients of a sum: which addends every rank has in it, and what that means.
//
// Thread-safety: free functions without shared state.
#pragma once

#include "analysis/causes/common/evidence.h"
#include "analysis/causes/common/hypothesis.h"
#include "analysis/causes/common/least_squares.h"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace ttrace {

// One term of a sum that should have the coefficient 1 on every rank.
struct Addend {
  std::vector<int> ranks;                   // that compute it, or a part of it
  std::int64_t microbatch = kNoMicrobatch;  // where it belongs to one
};

// The coefficients fitted to what one rank holds.
struct RankFit {
  int rank = 0;
  Fit fit;             // of the addends, in their order; further coefficients are ignored here
  double error = 0.0;  // norm of what the rank holds less the sum with all coefficients 1
};

// Nothing where all coefficients are 1, or fit no pattern that can be named.
[[nodiscard]] std::optional<Hypothesis> read_coefficients(const Evidence& evidence,
                                                          std::span<const Addend> addends,
                                                          std::span<const RankFit> ranks);

// ||target - sum of the columns||
[[nodiscard]] double error_of_sum(std::span<const std::vector<double>> columns,
                                  std::span<const double> target);

}  // namespace ttrace
