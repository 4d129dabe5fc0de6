#include "analysis/checks/sketch_parts.h"

#include "analysis/align/tensor_pair.h"
#include "analysis/checks/values_check.h"
#include "analysis/findings/wording.h"
#include "trace/kernels/sketch_grid.h"
#include "trace/place/boxes.h"

#include <fmt/core.h>

#include <deque>
#include <limits>
#include <optional>
#include <utility>

namespace ttrace {
namespace {

// Adds the blocks of indices [first, first + extent) of a dimension of `size`. Returns false where
// these are not whole blocks.
bool add_blocks(
    std::int64_t first, std::int64_t extent, std::int64_t size, int shift, DimPlacement& blocks) {
  const std::int64_t width = std::int64_t{1} << static_cast<unsigned>(shift);
  const std::int64_t end = first + extent;
  if (first % width != 0 || (end % width != 0 && end != size)) {
    return false;
  }
  const std::int64_t count = (end + width - 1) / width - first / width;
  blocks.segments.push_back({blocks.local_size, first / width, count});
  blocks.local_size += count;
  return true;
}

std::optional<Placement> in_blocks(const Placement& placement, const SketchGrid& grid) {
  if (placement.flat || placement.dims.empty()) {
    return std::nullopt;
  }
  Placement result;
  result.dims = {{0, grid.row_blocks(), {}}, {0, grid.column_blocks(), {}}};
  bool fits = true;
  const std::span<const DimPlacement> dims = placement.dims;
  for_each_run(dims.first(dims.size() - 1), [&](Offsets offsets, std::int64_t length) {
    fits = fits && add_blocks(offsets.logical, length, grid.rows, grid.row_shift, result.dims[0]);
  });
  for (const Segment& segment : dims.back().segments) {
    fits = fits &&
           add_blocks(
               segment.logical, segment.extent, grid.columns, grid.column_shift, result.dims[1]);
  }
  return fits ? std::optional(std::move(result)) : std::nullopt;
}

// What ranks hold of the cells: the shards that are made of whole blocks.
class ShardsOfCells {
 public:
  ShardsOfCells(std::span<const Shard> shards, const SketchGrid& grid) {
    for (const Shard& shard : shards) {
      if (auto placement = in_blocks(shard.record->placement, grid)) {
        Record& record = records_.emplace_back();
        record.id = shard.record->id;
        record.placement = *std::move(placement);
        shards_.push_back({shard.rank, &record, {}, nullptr});
      }
    }
  }

  [[nodiscard]] std::span<const Shard> shards() const { return shards_; }

 private:
  std::deque<Record> records_;  // a deque keeps addresses
  std::vector<Shard> shards_;
};

// 0 where heads are not made of whole blocks.
std::int64_t blocks_of_head(std::int64_t size, const SketchGrid& grid) {
  const std::int64_t width = std::int64_t{1} << static_cast<unsigned>(grid.column_shift);
  return size % width == 0 ? size / width : 0;
}

}  // namespace

std::vector<Check> part_checks(const Bounds& bounds,
                               const Judged& judged,
                               const SketchPair& sketches,
                               const Slices& slices,
                               std::span<const Shard> candidate,
                               std::int64_t head,
                               std::span<const std::int64_t> shape) {
  const SketchGrid& grid = sketches.reference.grid;
  const ShardsOfCells held(candidate, grid);
  const std::vector<std::int64_t> cells = {grid.row_blocks(), grid.column_blocks()};
  return part_checks(bounds,
                     judged,
                     {cells,
                      ElementType::kF64,
                      sketches.reference.cells.data(),
                      ElementType::kF64,
                      sketches.candidate.cells.data()},
                     slices,
                     held.shards(),
                     blocks_of_head(head, grid),
                     PartNames(grid, shape));
}

std::vector<Check> finite_checks(const SketchPair& sketches, const Match& match) {
  const auto& [reference, candidate] = sketches;
  if (reference.nonfinite_places == candidate.nonfinite_places &&
      reference.nonfinite == candidate.nonfinite) {
    return {};
  }
  Check check =
      failed(Question::kFinite,
             fmt::format("the candidate has {} that are Inf or NaN, the reference {}{}",
                         counted(candidate.nonfinite, "element"),
                         reference.nonfinite,
                         reference.nonfinite == candidate.nonfinite ? " at other places" : ""),
             holders_of_nonfinite(match.candidate));
  check.terms = {{Term::kError, std::numeric_limits<double>::infinity()}};
  return {std::move(check)};
}

}  // namespace ttrace
