// What a report says about how much was judged, its limits, and the coverage of noise.
//
// Thread-safety: free functions that only read.
#pragma once

#include "analysis/findings/report.h"

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace ttrace {

struct CountRow {
  std::string_view key;    // for programs
  std::string_view words;  // for people, before the number
  std::size_t value = 0;
  bool is_of_others = false;  // counts something else than the rows before it
  bool is_told = false;       // to people, even if it is 0
};

[[nodiscard]] std::vector<CountRow> rows_of_counts(const Report& report);

// "tensors 5, judged 5, within bound 3, out of bound 2; noise passes 5, ...": those that are told
// or not 0.
[[nodiscard]] std::string counts_text(const Report& report);

// "shipped defaults, not calibrated for this program"
[[nodiscard]] std::string limits_text(const Report& report);

// "noise reached 812 of 830 tensors; ...", without a full stop.
[[nodiscard]] std::string coverage_text(const NoiseCoverage& coverage);

}  // namespace ttrace
