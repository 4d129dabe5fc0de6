#include "trace/file/record.h"

#include <ttrace/error.h>

namespace ttrace {

std::int64_t element_count(const std::vector<std::int64_t>& shape) {
  std::int64_t count = 1;
  for (const std::int64_t extent : shape) {
    TTRACE_CHECK(extent >= 0, FormatError, "a shape has the negative extent ", extent);
    TTRACE_CHECK(!__builtin_mul_overflow(count, extent, &count),
                 FormatError,
                 "a shape has more elements than 64 bits can count");
  }
  return count;
}

std::string shape_text(std::span<const std::int64_t> shape) {
  std::string text;
  for (const std::int64_t extent : shape) {
    text += (text.empty() ? "" : "x") + std::to_string(extent);
  }
  return text.empty() ? "scalar" : text;
}

}  // namespace ttrace
