// The terms that a probable cause names: the axis of ranks, the factor, the ranks.
//
// Thread-safety: a free function without shared state.
#pragma once

#include <nlohmann/json.hpp>

#include <optional>
#include <set>
#include <string>

namespace ttrace::testing {

struct NamedTerms {
  std::set<std::string> axes = {};    // "tp", "dp"
  std::optional<double> factor = {};  // of the tensor, or of all addends that do not count once
  std::set<int> ranks = {};           // those that the cause calls wrong

  bool operator==(const NamedTerms&) const = default;
};

// The terms that `named` of a report's first diagnosis lists. Several factors that are not 1 and
// differ are no factor.
[[nodiscard]] NamedTerms named_terms(const nlohmann::json& report);

}  // namespace ttrace::testing
