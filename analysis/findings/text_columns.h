// Tables in reports for people.
//
// Thread-safety: a free function without shared state.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

namespace ttrace {

// What a terminal is sent around the first cell of every row but the heading; it takes no place.
struct Emphasis {
  std::string_view begin = {};
  std::string_view end = {};
};

// Indented rows of cells. Columns begin at the same place; the last cell may be of any length.
template <std::size_t kColumns>
void write_columns(std::ostream& out,
                   const std::vector<std::array<std::string, kColumns>>& rows,
                   Emphasis emphasis = {}) {
  std::array<std::size_t, kColumns> widths{};
  for (const auto& row : rows) {
    for (std::size_t column = 0; column + 1 < kColumns; ++column) {
      widths[column] = std::max(widths[column], row[column].size() + 2);
    }
  }
  for (const auto& row : rows) {
    std::string line = "  ";
    for (std::size_t column = 0; column < kColumns; ++column) {
      line += row[column];
      line.resize(line.size() + std::max(widths[column], row[column].size()) - row[column].size(),
                  ' ');
    }
    line.erase(line.find_last_not_of(' ') + 1);
    if (&row != &rows.front()) {
      line.insert(2 + row.front().size(), emphasis.end);
      line.insert(2, emphasis.begin);
    }
    out << line << '\n';
  }
}

}  // namespace ttrace
