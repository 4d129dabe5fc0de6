#include "analysis/align/step_range.h"

#include <ttrace/error.h>

#include <fmt/core.h>

#include <charconv>

namespace ttrace {
namespace {

bool read(std::string_view text, std::int64_t& value) {
  const char* end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, value);
  return result.ec == std::errc{} && result.ptr == end;
}

}  // namespace

StepRange parse_steps(const std::string& text) {
  const std::size_t colon = text.find(':');
  StepRange steps;
  bool good = read(std::string_view(text).substr(0, colon), steps.first);
  if (colon == std::string::npos) {
    steps.last = steps.first + 1;
  } else {
    good = good && read(std::string_view(text).substr(colon + 1), steps.last);
  }
  TTRACE_CHECK(
      good && steps.first >= 0 && steps.last > steps.first,
      UsageError,
      fmt::format("--steps is '{}'; it must be FIRST:LAST with 0 <= FIRST < LAST, or one number",
                  text));
  return steps;
}

std::string to_string(const StepRange& steps) {
  return std::to_string(steps.first) + ":" + std::to_string(steps.last);
}

}  // namespace ttrace
