#include "analysis/align/step_range.h"

#include "trace/base/parse_integer.h"

#include <ttrace/error.h>

#include <fmt/core.h>

#include <string_view>

namespace ttrace {

StepRange parse_steps(const std::string& text) {
  constexpr std::int64_t kWrong = -1;
  const std::string_view view = text;
  const std::size_t colon = view.find(':');
  const auto first = parse_number<std::int64_t>(view.substr(0, colon)).value_or(kWrong);
  const auto last = colon == view.npos
                        ? first + 1
                        : parse_number<std::int64_t>(view.substr(colon + 1)).value_or(kWrong);
  TTRACE_CHECK(
      first >= 0 && last > first,
      UsageError,
      fmt::format("--steps is '{}'; it must be FIRST:LAST with 0 <= FIRST < LAST, or one number",
                  text));
  return {first, last};
}

std::string to_string(const StepRange& steps) {
  return std::to_string(steps.first) + ":" + std::to_string(steps.last);
}

}  // namespace ttrace
