#include "analysis/findings/wording.h"

#include <cstddef>
#include <cstdio>

namespace ttrace {

std::string short_number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g", value);
  return text;
}

std::string long_number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", value);
  return text;
}

std::string factor_text(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%#.4g", value);
  return text;
}

std::string index_text(std::span<const std::int64_t> index) {
  std::string text = "[";
  for (std::size_t i = 0; i < index.size(); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(index[i]);
  }
  return text + "]";
}

std::string shape_text(std::span<const std::int64_t> shape) {
  if (shape.empty()) {
    return "scalar";
  }
  std::string text;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    text += (i == 0 ? "" : "x") + std::to_string(shape[i]);
  }
  return text;
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
  std::string text;
  for (const std::string& name : names) {
    text += (text.empty() ? "" : " and ") + name;
  }
  return text;
}

std::string counted(std::int64_t count, const std::string& one, const std::string& many) {
  return std::to_string(count) + " " + (count == 1 ? one : many);
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
