// Reads numbers of texts.
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>
#include <system_error>

namespace ttrace {

// The number that all of `text` is, as std::from_chars reads it in this format. Nothing: it is
// none.
template <class Number, class... Format>
[[nodiscard]] std::optional<Number> parse_number(std::string_view text, Format... format) {
  Number value{};
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, value, format...);
  return error == std::errc() && end == last ? std::optional(value) : std::nullopt;
}

// A non-negative decimal number of our text forms: digits only, no sign, no leading zero, so that
// every number has one spelling and printing round-trips. Nothing: `text` is none, or exceeds 63
// bits.
[[nodiscard]] inline std::optional<std::int64_t> parse_integer(std::string_view text) {
  if (text.empty() || text.front() == '-' || (text.size() > 1 && text.front() == '0')) {
    return std::nullopt;
  }
  return parse_number<std::int64_t>(text);
}

// 12 of "s12" for the letter s; nothing if the text is something else.
[[nodiscard]] inline std::optional<std::int64_t> parse_integer_after(char letter,
                                                                     std::string_view text) {
  return text.starts_with(letter) ? parse_integer(text.substr(1)) : std::nullopt;
}

}  // namespace ttrace
