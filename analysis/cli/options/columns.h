// A table for people.
//
// Thread-safety: free function without shared state.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

namespace ttrace::cli {

// One line each, two spaces between columns; the last column, which has numbers, ends at one place.
// Requires: as many cells in every line.
void write_columns(std::ostream& out, const std::vector<std::vector<std::string>>& lines);

}  // namespace ttrace::cli
