// Reads a non-negative decimal number of our text forms: digits only, no sign, no leading zero, so
// that every number has one spelling and printing round-trips.
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>

namespace ttrace {

// Nothing where `text` is no such number or exceeds 63 bits.
[[nodiscard]] inline std::optional<std::int64_t> parse_integer(std::string_view text) {
  const bool digits_only =
      !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
  if (!digits_only || (text.size() > 1 && text.front() == '0')) {
    return std::nullopt;
  }
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) {
    return std::nullopt;
  }
  return value;
}

}  // namespace ttrace
