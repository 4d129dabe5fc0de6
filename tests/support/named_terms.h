// The terms that a probable cause names: the axis of ranks, the factor, the ranks.
//
// Thread-safety: free functions without shared state.
#pragma once

#include <nlohmann/json.hpp>

#include <optional>
#include <set>
#include <string>

namespace ttrace::testing {

struct NamedTerms {
  std::set<std::string> axes = {};    // "tp", "dp"
  std::optional<double> factor = {};  // of the tensor, or of all addends that are not whole
  std::set<int> ranks = {};           // those that the sentence does not call right

  bool operator==(const NamedTerms&) const = default;
};

// The terms of a report's first diagnosis: its `named`, an object with `axes`, `factor` and
// `ranks`, if it has one; else those of its sentence.
[[nodiscard]] NamedTerms named_terms(const nlohmann::json& report);

// Reads a sentence such as "the sum over tp is missing; on rank 0 it is 1.000, 0.000 x ...".
[[nodiscard]] NamedTerms terms_of_sentence(const std::string& sentence);

}  // namespace ttrace::testing
