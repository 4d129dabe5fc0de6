#include "analysis/findings/text_columns.h"

#include <algorithm>
#include <ostream>

namespace ttrace {

void write_columns(std::ostream& out,
                   const std::vector<std::vector<std::string>>& rows,
                   const TableStyle& style) {
  const std::size_t last = rows.front().size() - 1;
  std::vector<std::size_t> widths(last + 1);
  for (const std::vector<std::string>& row : rows) {
    for (std::size_t column = 0; column <= last; ++column) {
      widths[column] = std::max(widths[column], row[column].size());
    }
  }
  for (const std::vector<std::string>& row : rows) {
    std::string line(style.indent, ' ');
    for (std::size_t column = 0; column < last; ++column) {
      line.append(row[column]).append(widths[column] + 2 - row[column].size(), ' ');
    }
    line.append(style.numbers_last ? widths[last] - row[last].size() : 0, ' ').append(row[last]);
    line.erase(line.find_last_not_of(' ') + 1);
    if (&row != &rows.front()) {
      line.insert(style.indent + row.front().size(), style.end);
      line.insert(style.indent, style.begin);
    }
    out << line << '\n';
  }
}

}  // namespace ttrace
