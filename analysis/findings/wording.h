// Texts for numbers, indices and ranks.
#pragma once

#include <concepts>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ttrace {

// Three significant digits: "0.021", "1.2e-05", "inf".
[[nodiscard]] std::string short_number(double value);
// Six significant digits: enough to redo arithmetic by hand.
[[nodiscard]] std::string long_number(double value);
// Four significant digits, zeros kept: "0.5000", "1.002".
[[nodiscard]] std::string factor_text(double value);
// A factor by how far it is from one: "(1 - 0.003)".
[[nodiscard]] std::string near_one_text(double deviation);
// Of a share: "62 %"; as a number where that would be all zeros.
[[nodiscard]] std::string percent_text(double share);
// "[0, 3, 17]"; "[]" for the index of a scalar.
[[nodiscard]] std::string index_text(std::span<const std::int64_t> index);
// "rank 3", "ranks 0-3, 6"
[[nodiscard]] std::string ranks_text(std::span<const int> ranks);
// "tp", "tp and pp".
[[nodiscard]] std::string and_text(std::span<const std::string> names);
// "1 noise pass", "5 noise passes".
[[nodiscard]] std::string counted_noun(std::int64_t count, std::string_view noun);
template <std::integral Count>
[[nodiscard]] std::string counted(Count count, std::string_view noun) {
  return counted_noun(static_cast<std::int64_t>(count), noun);
}

// The logical index of row-major position `position`.
[[nodiscard]] std::vector<std::int64_t> unravel(std::int64_t position,
                                                std::span<const std::int64_t> shape);

}  // namespace ttrace
