// Reading the coefficients of a sum: which addends every rank has in it, which do not belong there,
// and what that means.
//
// Thread-safety: free functions without shared state.
#pragma once

#include "analysis/causes/common/evidence.h"
#include "analysis/causes/common/hypothesis.h"
#include "analysis/causes/common/least_squares.h"

#include <cstddef>
#include <cstdint>
#include <functional>
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

inline constexpr std::size_t kMostAddends = 64;  // that are fitted at once

struct AddendColumns {
  std::vector<Addend> list;
  std::vector<std::vector<double>> columns;  // in the same order, of the whole sum's shape
};

// The coefficients fitted to what one rank holds.
struct RankFit {
  int rank = 0;
  Fit fit;             // of the addends, in their order
  double error = 0.0;  // norm of what the rank holds less the sum with all coefficients 1
};

// What `rank` holds as a sum of `columns`, the first of which are the `addends`; nothing where it
// is no such sum.
[[nodiscard]] std::optional<RankFit> fit_rank(int rank,
                                              std::span<const std::vector<double>> columns,
                                              std::size_t addends,
                                              std::span<const double> held);

// Nothing where all coefficients are 1, or fit no pattern that can be named.
[[nodiscard]] Hypotheses read_coefficients(const Evidence& evidence,
                                           std::span<const Addend> addends,
                                           std::span<const RankFit> ranks);

// Whether `target` is the sum of the columns, as far as a formula is known from its result.
[[nodiscard]] bool is_sum_of(std::span<const std::vector<double>> columns,
                             std::span<const double> target);

// What the coefficient of an addend means.
struct Meaning {
  std::string text = {};  // ": ..." or " (...)"; empty for nothing
  Named named = {};       // how often the addend counts, and the axes of that size
};

// Something that may be in a sum and does not belong there, or belongs there and is not in it.
struct ExtraAddend {
  std::vector<double> values;                      // as long as the difference that it is fitted to
  std::string name;                                // "s0/main_grad/w/0, its value one step earlier"
  std::function<Meaning(double, double)> meaning;  // of a coefficient and its standard error
};

// candidate = reference + a_1 x_1 + a_2 x_2 + ... for `difference`, c - r at the places where the
// addends are known; nothing where they leave more than `allowed`.
[[nodiscard]] std::optional<Hypothesis> read_extra_addends(std::span<const ExtraAddend> addends,
                                                           std::span<const double> difference,
                                                           double allowed);

}  // namespace ttrace
