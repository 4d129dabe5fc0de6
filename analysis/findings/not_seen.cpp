#include "analysis/findings/not_seen.h"

#include <fmt/core.h>

namespace ttrace {

std::string_view side_of(const UnseenPart& part) {
  return part.side ? name_of(*part.side) : "both";
}

std::string to_string(const UnseenPart& part) {
  return fmt::format("{} ({}): {}", name_of(part.kind), side_of(part), part.sentence);
}

std::vector<std::string> lines_of(const std::vector<UnseenPart>& parts) {
  std::vector<std::string> lines;
  lines.reserve(parts.size());
  for (const UnseenPart& part : parts) {
    lines.push_back(to_string(part));
  }
  return lines;
}

}  // namespace ttrace
