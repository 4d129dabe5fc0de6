// Reads a non-negative decimal number of our text forms: digits only, no sign, no leading zero, so
// that every number has one spelling and printing round-trips.
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>

namespace ttrace {

// Returns nothing if `text` is not such a number or exceeds 63 bits.
[[nodiscard]] inline std::optional<std::int64_t> parse_integer(std::string_view text) {
  if (text.empty() || text.front() == '-' || (text.size() > 1 && text.front() == '0')) {
    return std::nullopt;
  }
  std::int64_t value = 0;
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, value);
  if (error != std::errc() || end != last) {
    return std::nullopt;
  }
  return value;
}

}  // namespace ttrace
