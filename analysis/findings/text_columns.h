// Tables for people.
//
// Thread-safety: a free function without shared state.
#pragma once

#include <cstddef>
#include <iosfwd>
#include <string>
#include <string_view>
#include <vector>

namespace ttrace {

struct TableStyle {
  // What a terminal is sent around the first cell of every row but the heading; it takes no place.
  std::string_view begin = {};
  std::string_view end = {};
  std::size_t indent = 2;
  bool numbers_last = false;  // the last column ends at one place
};

// Columns begin at the same place, two spaces apart. Requires: a row, and as many cells in every
// one.
void write_columns(std::ostream& out,
                   const std::vector<std::vector<std::string>>& rows,
                   const TableStyle& style = {});

}  // namespace ttrace
