// The part of a logical tensor that a placement claims, and whether several parts tile it.
//
// A part is always a product of index sets, one per dimension. Cutting every dimension into the
// largest sets that no part divides turns the question into counting the cells of a small grid,
// however many segments the placements have.
//
// Thread-safety: values and free functions without shared state; call from any thread.
#pragma once

#include "trace/base/index_set.h"

#include <ttrace/placement.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace ttrace {

// The cross product of one set per dimension.
using Region = std::vector<IndexSet>;

[[nodiscard]] Region region_of(std::span<const DimPlacement> dims);
[[nodiscard]] std::int64_t element_count(const Region& region);
// "[0:64, 3, 0:4+12:16]".
[[nodiscard]] std::string to_string(const Region& region);

struct Overlap {
  std::size_t first = 0;  // two of the regions, by number
  std::size_t second = 0;
  Region common;
};

struct Coverage {
  std::vector<Overlap> overlaps;
  std::vector<Region> gaps;  // disjoint; one where what is missing is a product
};

// Whether the regions tile `space`. Requires: they lie within it and differ from each other. Throws
// FormatError if they are too irregular to check.
[[nodiscard]] Coverage cover(const Region& space, std::span<const Region> regions);

}  // namespace ttrace
