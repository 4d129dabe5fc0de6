#include "analysis/align/differing_keys.h"

#include <utility>

namespace ttrace {

std::set<std::string> differing_keys(const Section& left, const Section& right) {
  std::set<std::string> keys;
  for (const auto& [one, other] : {std::pair(&left, &right), std::pair(&right, &left)}) {
    for (const auto& [key, value] : *one) {
      const auto found = other->find(key);
      if (found == other->end() || found->second != value) {
        keys.insert(key);
      }
    }
  }
  return keys;
}

std::string value_or(const Section& section, const std::string& key, const std::string& absent) {
  const auto found = section.find(key);
  return found == section.end() ? absent : found->second;
}

}  // namespace ttrace
