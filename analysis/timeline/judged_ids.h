// What a stored report says of each tensor, as far as a timeline shows it.
//
// Thread-safety: plain values and a free function without shared state.
#pragma once

#include <string>
#include <unordered_map>

namespace ttrace {

struct JudgedId {
  std::string status;  // "within", "diverged"
  bool is_finding = false;
  std::string cause;  // empty if there is none
};

struct JudgedIds {
  std::unordered_map<std::string, JudgedId> by_id;
  std::string first_divergence;  // id; empty: nothing diverged
};

// Reads a report that `--format json` wrote, or a check in its folder. Only what is asked for is
// kept while reading, because a report of 100,000 tensors has millions of numbers. Throws
// FormatError.
[[nodiscard]] JudgedIds read_judged_ids(const std::string& report);

}  // namespace ttrace
