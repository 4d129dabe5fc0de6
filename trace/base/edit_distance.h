// The distance of two names, for messages that suggest the intended one.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <vector>

namespace ttrace {

// Levenshtein distance of two sequences of these lengths: the least cost of edits that make `from`
// into `to`. `replaced(i, j)` is the cost of item j in place of item i, `added` that of one item
// more or less.
template <class Cost, class Replaced>
[[nodiscard]] Cost edit_distance(std::size_t from,
                                 std::size_t to,
                                 Cost added,
                                 const Replaced& replaced) {
  std::vector<Cost> row(to + 1);
  for (std::size_t j = 0; j <= to; ++j) {
    row[j] = added * static_cast<Cost>(j);
  }
  for (std::size_t i = 0; i < from; ++i) {
    Cost diagonal = row[0];
    row[0] = added * static_cast<Cost>(i + 1);
    for (std::size_t j = 0; j < to; ++j) {
      const Cost exchanged = diagonal + replaced(i, j);
      diagonal = row[j + 1];
      row[j + 1] = std::min({exchanged, row[j] + added, row[j + 1] + added});
    }
  }
  return row.back();
}

// The fewest single-letter edits.
[[nodiscard]] inline std::size_t edit_distance(std::string_view from, std::string_view to) {
  return edit_distance(from.size(), to.size(), std::size_t{1}, [&](std::size_t i, std::size_t j) {
    return std::size_t{from[i] != to[j]};
  });
}

}  // namespace ttrace
