#include "analysis/reports/wrapped_text.h"

#include <algorithm>

namespace ttrace {

std::string wrapped(std::string_view text, std::size_t width, std::size_t indent) {
  if (width <= indent) {
    return std::string(text);
  }
  const std::size_t room = width - indent;
  std::string lines;
  while (text.size() > room) {
    std::size_t end = text.rfind(' ', room);
    end = end == std::string_view::npos || end == 0 ? text.find(' ', room) : end;
    if (end == std::string_view::npos) {
      break;
    }
    lines += std::string(text.substr(0, end)) + '\n' + std::string(indent, ' ');
    text.remove_prefix(std::min(text.find_first_not_of(' ', end), text.size()));
  }
  return lines + std::string(text);
}

}  // namespace ttrace
