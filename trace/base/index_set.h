// Sets of indices of one dimension, as ascending intervals: what several ranks hold together.
//
// Thread-safety: values and free functions without shared state; call from any thread.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <vector>

namespace ttrace {

// Indices [begin, end).
struct Interval {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  auto operator<=>(const Interval&) const = default;
};

// Ascending, neither overlapping nor touching, so that equal sets are equal values.
using IndexSet = std::vector<Interval>;

// The set of all indices in the intervals, which may overlap and come in any order.
[[nodiscard]] IndexSet normalised(std::vector<Interval> intervals);
[[nodiscard]] IndexSet intersection(const IndexSet& left, const IndexSet& right);
// The indices that only `left` has.
[[nodiscard]] IndexSet difference(const IndexSet& left, const IndexSet& right);
// Number of indices.
[[nodiscard]] std::int64_t size_of(const IndexSet& set);
// "0:4+7+12:16", at most eight intervals and "+..."; empty for the empty set.
[[nodiscard]] std::string to_string(const IndexSet& set);

}  // namespace ttrace
