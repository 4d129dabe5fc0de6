// The boxes that form a placement, and the runs of elements that are contiguous on both sides.
//
// A flat range [first, first + count) of a tensor of d dimensions is at most 2d - 1 boxes: the rest
// of the row in which it begins, whole rows, the beginning of the row in which it ends, and so on
// for rows of rows. Cut down to a box, the dimensions are dimensions again.
//
// Thread-safety: free functions without shared state; call from any thread.
#pragma once

#include <ttrace/placement.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace ttrace {

// Requires: `range` lies within the local tensor. Ordered by local start. A dimension of a box
// keeps its sizes; its segments are cut. Boxes that hold nothing but padding are left out.
[[nodiscard]] std::vector<std::vector<DimPlacement>> boxes_of(std::span<const DimPlacement> dims,
                                                              FlatRange range);

// A box of the cross product of the dimensions' segments; all three have one entry per dimension.
// Local indices are those of the parameter where the placement is a flat range of one.
struct Rectangle {
  std::vector<std::int64_t> local_start;
  std::vector<std::int64_t> logical_start;
  std::vector<std::int64_t> extent;
};

// All boxes, ordered by local start.
[[nodiscard]] std::vector<Rectangle> rectangles(const Placement& placement);

// Number of local elements of valid dimensions.
[[nodiscard]] std::int64_t local_elements(std::span<const DimPlacement> dims);

// Offset of an element in the local and in the logical tensor.
struct Offsets {
  std::int64_t local = 0;
  std::int64_t logical = 0;
};

// Whether every local index is the same logical index, and there is at least one.
[[nodiscard]] inline bool is_identity(const DimPlacement& dim) {
  return dim.local_size == dim.logical_size && dim.segments.size() == 1 &&
         dim.segments.front().extent == dim.local_size;
}
[[nodiscard]] inline bool is_identity(std::span<const DimPlacement> dims) {
  return std::all_of(
      dims.begin(), dims.end(), [](const DimPlacement& dim) { return is_identity(dim); });
}

namespace detail {

template <class Visit>
void visit_runs(std::span<const DimPlacement> dims,
                Offsets outer,
                std::int64_t inner,
                const Visit& visit) {
  const DimPlacement& dim = dims.front();
  const Offsets base{outer.local * dim.local_size, outer.logical * dim.logical_size};
  for (const Segment& segment : dim.segments) {
    const Offsets start{base.local + segment.local, base.logical + segment.logical};
    if (dims.size() == 1) {
      visit(Offsets{start.local * inner, start.logical * inner}, segment.extent * inner);
      continue;
    }
    for (std::int64_t i = 0; i < segment.extent; ++i) {
      visit_runs(dims.subspan(1), {start.local + i, start.logical + i}, inner, visit);
    }
  }
}

}  // namespace detail

// Calls `visit(offsets, length)` for runs of elements that are contiguous in the local and in the
// logical tensor and together are all that is not padding.
template <class Visit>
void for_each_run(std::span<const DimPlacement> dims, const Visit& visit) {
  std::int64_t inner = 1;
  while (!dims.empty() && is_identity(dims.back())) {
    inner *= dims.back().local_size;
    dims = dims.first(dims.size() - 1);
  }
  if (dims.empty()) {
    visit(Offsets{}, inner);
  } else {
    detail::visit_runs(dims, {}, inner, visit);
  }
}

// The same within a range of the local tensor, whose offsets still count from that one's start.
template <class Visit>
void for_each_run(std::span<const DimPlacement> dims, FlatRange range, const Visit& visit) {
  for (const std::vector<DimPlacement>& box : boxes_of(dims, range)) {
    for_each_run(box, visit);
  }
}

// The same of all that a rank holds, from whose first element local offsets count.
template <class Visit>
void for_each_run(const Placement& placement, const Visit& visit) {
  if (!placement.flat) {
    for_each_run(placement.dims, visit);
    return;
  }
  const std::int64_t first = placement.flat->first;
  for_each_run(placement.dims, *placement.flat, [&](Offsets offsets, std::int64_t length) {
    visit(Offsets{offsets.local - first, offsets.logical}, length);
  });
}

}  // namespace ttrace
