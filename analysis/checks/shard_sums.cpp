#include "analysis/checks/shard_sums.h"

#include "trace/place/boxes.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

namespace ttrace {
namespace {

// Row-major position of `index`.
std::int64_t position_of(std::span<const std::int64_t> index, std::span<const std::int64_t> shape) {
  std::int64_t position = 0;
  for (std::size_t dim = 0; dim < shape.size(); ++dim) {
    position = position * shape[dim] + index[dim];
  }
  return position;
}

SliceSums sum_box(const TensorPair& pair, const Rectangle& box) {
  std::int64_t rows = 1;
  for (std::size_t dim = 0; dim + 1 < box.extent.size(); ++dim) {
    rows *= box.extent[dim];
  }
  const std::int64_t length = box.extent.empty() ? 1 : box.extent.back();
  std::vector<std::int64_t> index = box.logical_start;
  SliceSums sums;
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t start = position_of(index, pair.shape);
    sums.add(sum_elements(pair.reference_type,
                          advance(pair.reference, pair.reference_type, start),
                          pair.candidate_type,
                          advance(pair.candidate, pair.candidate_type, start),
                          length));
    for (std::size_t dim = index.size(); dim-- > 1;) {
      const std::size_t outer = dim - 1;
      if (++index[outer] < box.logical_start[outer] + box.extent[outer]) {
        break;
      }
      index[outer] = box.logical_start[outer];
    }
  }
  return sums;
}

std::int64_t extent_of(const DimPlacement& dim) {
  std::int64_t extent = 0;
  for (const Segment& segment : dim.segments) {
    extent += segment.extent;
  }
  return extent;
}

// The slices of the one dimension that is cut; null where none or several are, or it has no slices.
const Slicing* one_cut(const Slices& slices, const Placement& placement) {
  const Slicing* found = nullptr;
  for (std::size_t dim = 0; dim < placement.dims.size() && !placement.flat; ++dim) {
    if (extent_of(placement.dims[dim]) != placement.dims[dim].logical_size) {
      if (found != nullptr || slices.along(dim) == nullptr) {
        return nullptr;
      }
      found = slices.along(dim);
    }
  }
  return found;
}

SliceSums sum_placement(const TensorPair& pair, const Slices& slices, const Placement& placement) {
  SliceSums sums;
  if (const Slicing* const cut = one_cut(slices, placement)) {
    for (const Segment& segment : placement.dims[cut->dim].segments) {
      for (const SliceSums& slice :
           slices.of(*cut).subspan(static_cast<std::size_t>(segment.logical),
                                   static_cast<std::size_t>(segment.extent))) {
        sums.add(slice);
      }
    }
    return sums;
  }
  for (const Rectangle& box : rectangles(placement)) {
    sums.add(sum_box(pair, box));
  }
  return sums;
}

bool have_one_region(const Placement& left, const Placement& right) {
  return left.dims == right.dims && left.flat == right.flat;
}

}  // namespace

std::int64_t elements_of(const Placement& placement) {
  std::int64_t elements = 0;
  for (const Rectangle& box : rectangles(placement)) {
    elements +=
        std::accumulate(box.extent.begin(), box.extent.end(), std::int64_t{1}, std::multiplies<>());
  }
  return elements;
}

std::vector<ShardSums> sum_shards(const TensorPair& pair,
                                  const Slices& slices,
                                  std::span<const Shard> shards) {
  std::vector<ShardSums> result;
  for (const Shard& shard : shards) {
    const Placement& placement = shard.record->placement;
    const auto same = std::find_if(result.begin(), result.end(), [&](const ShardSums& other) {
      return have_one_region(*other.placement, placement);
    });
    if (same != result.end()) {
      same->ranks.push_back(shard.rank);
      continue;
    }
    result.push_back({&placement, {shard.rank}, sum_placement(pair, slices, placement)});
  }
  return result;
}

}  // namespace ttrace
