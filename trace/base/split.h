// Takes a text apart.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

namespace ttrace {

// The parts between the separators, empty ones included: views of the text.
[[nodiscard]] inline std::vector<std::string_view> split_at(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const std::string_view part = text.substr(0, text.find(separator));
    parts.push_back(part);
    if (part.size() == text.size()) {
      return parts;
    }
    text.remove_prefix(part.size() + 1);
  }
}

}  // namespace ttrace
