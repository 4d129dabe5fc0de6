// The traced iterations as people write them: `first:last` (last excluded) or one number.
//
// Thread-safety: free functions without shared state.
#pragma once

#include <cstdint>
#include <string>

namespace ttrace {

struct StepRange {
  std::int64_t first = 0;
  std::int64_t last = 1;  // excluded

  bool operator==(const StepRange&) const = default;
};

// Throws UsageError that quotes the text and says what was expected.
[[nodiscard]] StepRange parse_steps(const std::string& text);
// "0:1"
[[nodiscard]] std::string to_string(const StepRange& steps);

}  // namespace ttrace
