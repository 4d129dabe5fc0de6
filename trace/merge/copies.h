// The holders of a tensor's values, and whether two of them agree.
//
// Thread-safety: free functions without shared state; call from any thread.
#pragma once

#include "trace/base/index_set.h"

#include <ttrace/element_type.h>
#include <ttrace/placement.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace ttrace {

// Held by one rank, or by several whose flat ranges were joined. Refers to what it does not own.
struct Copy {
  std::vector<int> ranks;  // ascending, at least one
  std::span<const DimPlacement> dims;
  int partial_index = 0;
  ElementType type = ElementType::kF32;
  double scale = 1.0;
  std::span<const std::byte> bytes;          // a local tensor, row-major
  std::vector<std::byte>* joined = nullptr;  // has the bytes where no record does
};

// The difference of two copies.
struct Differences {
  std::int64_t count = 0;
  std::int64_t first = std::numeric_limits<std::int64_t>::max();  // logical offset
  double first_value = 0.0;                                       // of the one copy there
  double second_value = 0.0;                                      // and of the other
  double largest = 0.0;
};

// Elements [begin, end) of the logical tensor, side by side in two copies.
struct Run {
  Interval logical;
  const std::byte* first = nullptr;
  const std::byte* second = nullptr;
};

// Bits decide: -0 is not 0, and one NaN is not another. `scale` is that of both copies.
void add_differences(const Run& run, ElementType type, double scale, Differences& differences);
// Requires: one region and element type.
[[nodiscard]] Differences compare_copies(const Copy& first, const Copy& second);

// Copies all that is not padding to its place in the logical tensor.
void scatter(const Copy& copy, std::byte* logical);
// Adds a copy's scaled values to the logical tensor, or sets them.
void accumulate(const Copy& copy, bool is_first_addend, double* logical);

[[nodiscard]] std::size_t to_bytes(std::int64_t elements, ElementType type);

// "rank 1", "ranks 0,2".
[[nodiscard]] std::string rank_list(const std::vector<int>& ranks);
// "[3, 0]".
[[nodiscard]] std::string list_text(std::span<const std::int64_t> numbers);
// The text for the element at a row-major offset.
[[nodiscard]] std::string element_text(std::int64_t offset, std::span<const std::int64_t> shape);
// "2 of 8 elements differ between ranks 0 and 1, first at [3] (3 and 3.5); largest difference 2":
// `largest` is over all pairs. Of scalars "3 on rank 0 and 3.5 on rank 1".
[[nodiscard]] std::string differences_text(const Differences& differences,
                                           std::int64_t elements,
                                           std::pair<int, int> ranks,
                                           std::span<const std::int64_t> shape,
                                           double largest);

}  // namespace ttrace
