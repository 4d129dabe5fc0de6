// A table that has one row for every enumerator, at the enumerator's number.
//
// Thread-safety: free functions without shared state.
#pragma once

#include <cstddef>

namespace ttrace {

// Whether `key` of every row is its own number, and the last row's is `last`. For static_assert.
template <class Rows, class Row, class Enum>
[[nodiscard]] constexpr bool has_a_row_for_each(const Rows& rows, Enum Row::*key, Enum last) {
  for (std::size_t number = 0; number < rows.size(); ++number) {
    if (static_cast<std::size_t>(rows[number].*key) != number) {
      return false;
    }
  }
  return rows.size() == static_cast<std::size_t>(last) + 1;
}

}  // namespace ttrace
