// Patterns of names, in which `*` stands for any letters, dots included.
//
// Thread-safety: free functions without state.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace ttrace {

// Whether `name` fits a pattern, in which `*` stands for any letters, or none.
[[nodiscard]] constexpr bool fits_pattern(std::string_view pattern, std::string_view name) {
  std::size_t at = 0;
  std::size_t next = 0;                       // in `pattern`
  std::size_t star = std::string_view::npos;  // the last one that was passed
  std::size_t after_star = 0;                 // where in `name` its letters end
  while (at < name.size()) {
    if (next < pattern.size() && pattern[next] == '*') {
      star = next++;
      after_star = at;
    } else if (next < pattern.size() && pattern[next] == name[at]) {
      ++next;
      ++at;
    } else if (star != std::string_view::npos) {
      next = star + 1;
      at = ++after_star;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', next) == std::string_view::npos;
}

// Whether `name` fits one of the patterns, which stand with spaces between them.
[[nodiscard]] constexpr bool fits_any(std::string_view patterns, std::string_view name) {
  while (!patterns.empty()) {
    const std::size_t end = std::min(patterns.find(' '), patterns.size());
    if (end > 0 && fits_pattern(patterns.substr(0, end), name)) {
      return true;
    }
    patterns.remove_prefix(std::min(end + 1, patterns.size()));
  }
  return false;
}

}  // namespace ttrace
