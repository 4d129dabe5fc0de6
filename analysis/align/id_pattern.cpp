#include "analysis/align/id_pattern.h"

#include <utility>

namespace ttrace {

IdPattern::IdPattern(std::string option, std::string text)
    : option_(std::move(option)), text_(std::move(text)), pattern_(option_, text_) {}

bool IdPattern::found_in(const std::string& id) {
  const bool found = pattern_.found_in(id);
  used_ = used_ || found;
  return found;
}

bool IdPattern::matches(const std::string& id) {
  const bool found = pattern_.matches(id);
  used_ = used_ || found;
  return found;
}

std::vector<IdPattern> id_patterns(const std::string& option, std::span<const std::string> texts) {
  std::vector<IdPattern> patterns;
  for (const std::string& text : texts) {
    patterns.emplace_back(option, text);
  }
  return patterns;
}

bool any_found_in(std::span<IdPattern> patterns, const std::string& id) {
  bool any = false;
  for (IdPattern& pattern : patterns) {
    any = pattern.found_in(id) || any;
  }
  return any;
}

void add_unused(std::span<const IdPattern> patterns,
                const std::string& what,
                std::vector<std::string>& warnings) {
  for (const IdPattern& pattern : patterns) {
    if (!pattern.used()) {
      warnings.push_back(pattern.text() + " matches no " + what);
    }
  }
}

}  // namespace ttrace
