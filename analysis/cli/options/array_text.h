// Values of a tensor, or of a part of it, as numpy writes and prints them.
//
// Thread-safety: free functions without shared state.
#pragma once

#include "trace/base/index_set.h"

#include <ttrace/element_type.h>

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <span>
#include <string>
#include <vector>

namespace ttrace::cli {

// Every `step`-th index of one dimension.
struct IndexRange {
  Interval indices;
  std::int64_t step = 1;  // positive
  bool single = false;    // given as a number: the dimension is not printed

  [[nodiscard]] std::int64_t count() const;
};

// "0:4,:,-1": one word per dimension, first:last[:step] with last excluded or a number, negative
// ones from the end; dimensions without a word are whole. Throws UsageError that quotes the text.
[[nodiscard]] std::vector<IndexRange> parse_ranges(const std::string& text,
                                                   std::span<const std::int64_t> shape);

// A contiguous row-major tensor.
struct Array {
  ElementType type = ElementType::kF32;
  std::span<const std::int64_t> shape;
  const std::byte* data = nullptr;
};

// One range per dimension. Of more than `threshold` elements only the first and last three of each
// dimension are printed, with "..." between them.
void print_array(std::ostream& out,
                 const Array& array,
                 std::span<const IndexRange> ranges,
                 std::int64_t threshold);

}  // namespace ttrace::cli
