#include "analysis/findings/wording.h"

#include <fmt/format.h>

#include <cmath>
#include <cstddef>

namespace ttrace {

std::string short_number(double value) {
  return fmt::format("{:.3g}", value);
}

std::string long_number(double value) {
  return fmt::format("{:.6g}", value);
}

std::string factor_text(double value) {
  return fmt::format("{:#.4g}", value);
}

std::string near_one_text(double deviation) {
  return fmt::format("(1 {} {})", deviation < 0.0 ? "-" : "+", short_number(std::abs(deviation)));
}

std::string percent_text(double share) {
  return share != 0.0 && share < 1e-4 ? short_number(share) : short_number(100.0 * share) + " %";
}

std::string index_text(std::span<const std::int64_t> index) {
  return fmt::format("[{}]", fmt::join(index, ", "));
}

std::string ranks_text(std::span<const int> ranks) {
  if (ranks.empty()) {
    return "no rank";
  }
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) {
      ++last;
    }
    text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
    if (last > i) {
      text += (last == i + 1 ? ", " : "-") + std::to_string(ranks[last]);
    }
    i = last + 1;
  }
  return text;
}

std::string and_text(std::span<const std::string> names) {
  return fmt::format("{}", fmt::join(names, " and "));
}

std::string counted_noun(std::int64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : noun.ends_with('s') ? "es" : "s");
}

std::vector<std::int64_t> unravel(std::int64_t position, std::span<const std::int64_t> shape) {
  std::vector<std::int64_t> index(shape.size());
  for (std::size_t dim = shape.size(); dim-- > 0;) {
    index[dim] = position % shape[dim];
    position /= shape[dim];
  }
  return index;
}

}  // namespace ttrace
