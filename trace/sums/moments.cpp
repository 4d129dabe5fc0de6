#include "trace/sums/moments.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <numeric>
#include <optional>
#include <utility>

namespace ttrace {
namespace {

// So few elements of all tensors stay in a core's cache until every pair has had them.
constexpr std::int64_t kStep = 8 * kStatisticsBlock;

const std::byte* at(const TensorBytes& tensor, std::int64_t element) {
  return tensor.bytes + static_cast<std::size_t>(element) * element_size(tensor.type);
}

Statistics compare_step(const SummedPair& pair, std::int64_t start, std::int64_t count) {
  return compare(pair.reference.type,
                 at(pair.reference, start),
                 pair.other.type,
                 at(pair.other, start),
                 count,
                 start);
}

// The cells of two sketches as small tensors, with slices. Points into both.
SummedPair pair_of_cells(const Sketch& reference, const Sketch& other) {
  const auto bytes = [](const Sketch& sketch) {
    return TensorBytes{ElementType::kF64, reinterpret_cast<const std::byte*>(sketch.cells.data())};
  };
  return {bytes(reference), bytes(other), true};
}

}  // namespace

std::vector<Moments> moments_of(std::span<const std::int64_t> shape,
                                std::span<const SummedPair> pairs) {
  const std::int64_t elements =
      std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
  std::vector<Moments> moments(pairs.size());
  std::vector<std::optional<SliceWalk>> walks(pairs.size());
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const auto& [reference, other, with_slices] = pairs[i];
    if (with_slices) {
      walks[i].emplace(shape, reference.type, reference.bytes, other.type, other.bytes);
    }
  }
  for (std::int64_t start = 0; start < elements; start += kStep) {
    const std::int64_t count = std::min(kStep, elements - start);
    for (std::size_t i = 0; i < pairs.size(); ++i) {
      moments[i].all.merge(compare_step(pairs[i], start, count));
      if (walks[i]) {
        walks[i]->go_on_to(start + count);
      }
    }
  }
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    if (walks[i]) {
      moments[i].slices = std::move(*walks[i]).finish();
    }
  }
  return moments;
}

Moments moments_of(const Sketch& reference, const Sketch& other) {
  Moments moments;
  const SketchGrid& grid = reference.grid;
  const std::vector<std::int64_t> shape = {grid.row_blocks(), grid.column_blocks()};
  const SummedPair cells = pair_of_cells(reference, other);
  Moments of_cells = std::move(moments_of(shape, std::span(&cells, 1)).front());
  Statistics& all = moments.all;
  const bool has_squares = !reference.row_squares.empty() && !other.row_squares.empty();
  const bool are_equal = has_squares && reference.digest == other.digest;
  all.count = grid.rows * grid.columns;
  all.reference_squared = has_squares ? reference.squares() : of_cells.all.reference_squared;
  all.candidate_squared = has_squares ? other.squares() : of_cells.all.candidate_squared;
  all.difference_squared = of_cells.all.difference_squared;
  all.max_difference = of_cells.all.max_difference;
  all.max_reference = reference.largest;
  all.is_estimate = true;
  all.different = are_equal ? 0 : all.count;
  all.reference_nonfinite = static_cast<std::int64_t>(reference.nonfinite);
  all.candidate_nonfinite = static_cast<std::int64_t>(other.nonfinite);
  moments.slices = std::move(of_cells.slices);
  SliceSums& whole = moments.slices.all;
  if (has_squares) {
    whole.along_reference =
        (all.candidate_squared - all.reference_squared - all.difference_squared) / 2.0;
    whole.reference_squared = all.reference_squared;
  } else {
    whole.along_reference = 0.0;
    whole.reference_squared = 0.0;
  }
  all.product = all.reference_squared + whole.along_reference;
  return moments;
}

}  // namespace ttrace
