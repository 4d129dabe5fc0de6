#include "analysis/cli/options/columns.h"

#include <algorithm>
#include <cstddef>
#include <ostream>

namespace ttrace::cli {

void write_columns(std::ostream& out, const std::vector<std::vector<std::string>>& lines) {
  std::vector<std::size_t> widths(lines.front().size());
  for (const std::vector<std::string>& cells : lines) {
    for (std::size_t column = 0; column < cells.size(); ++column) {
      widths[column] = std::max(widths[column], cells[column].size());
    }
  }
  for (const std::vector<std::string>& cells : lines) {
    for (std::size_t column = 0; column + 1 < cells.size(); ++column) {
      out << cells[column] << std::string(widths[column] - cells[column].size() + 2, ' ');
    }
    out << std::string(widths.back() - cells.back().size(), ' ') << cells.back() << '\n';
  }
}

}  // namespace ttrace::cli
