#include "analysis/checks/close_look.h"

#include "analysis/align/tensor_pair.h"
#include "analysis/align/values.h"
#include "analysis/checks/slices.h"
#include "analysis/findings/wording.h"
#include "trace/merge/merge.h"
#include "trace/sums/slices.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <optional>

namespace ttrace {
namespace {

constexpr std::size_t kMostParts = 8;

using Coordinates = std::vector<std::pair<std::string, int>>;

std::map<int, Coordinates> coordinates_of(const Trace& trace, std::int64_t step) {
  std::map<int, Coordinates> result;
  for (const StepTrace& traced : trace.steps()) {
    if (traced.step != step) {
      continue;
    }
    for (const RankFile& file : traced.ranks) {
      Coordinates& coordinates = result[file.layout().rank];
      for (const Axis& axis : file.layout().axes) {
        if (axis.size > 1 && axis.follows.empty()) {
          coordinates.emplace_back(axis.name, axis.coordinate);
        }
      }
    }
  }
  return result;
}

// Padding counts as equal. `ones`: a tensor of the reference's shape.
RankError error_of(const Shard& shard, const Values& reference, const Values& ones) {
  RankError result;
  result.rank = shard.rank;
  const std::vector<double> is_held = values_at(ones.data, shard);
  const std::vector<double> expected = values_at(reference.data, shard);
  const std::vector<double> values = local_values(shard).data;
  double error_squared = 0.0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (is_held[i] > 0.0) {
      ++result.elements;
      error_squared += (values[i] - expected[i]) * (values[i] - expected[i]);
    }
  }
  result.error = std::sqrt(error_squared);
  result.reference_norm = norm(expected);
  result.is_addend = shard.record->placement.partial_count > 1;
  return result;
}

std::string name_of_part(const Slicing& slicing,
                         std::int64_t number,
                         std::span<const std::int64_t> shape) {
  if (!slicing.is_of_rows()) {
    return fmt::format("index {} of dimension {}", number, slicing.dim);
  }
  return "row " + index_text(unravel(number, leading_shape(shape)));
}

// Adds the worst of the parts that `sums` are of. `name`: of a part's number.
void add_worst(std::span<const SliceSums> sums,
               const std::function<std::string(std::int64_t)>& name,
               bool are_heads,
               std::vector<PartError>& parts) {
  std::vector<PartError> own;
  for (std::size_t i = 0; i < sums.size(); ++i) {
    if (sums[i].difference_squared > 0.0) {
      own.push_back({name(static_cast<std::int64_t>(i)),
                     std::sqrt(sums[i].difference_squared),
                     std::sqrt(sums[i].reference_squared),
                     are_heads});
    }
  }
  std::ranges::stable_sort(own, std::greater<>(), &PartError::error);
  own.resize(std::min(own.size(), kMostParts));
  parts.insert(parts.end(), own.begin(), own.end());
}

// Of a tensor that consists of one head, the head says no more than the whole.
void add_worst_heads(const Slices& slices,
                     std::span<const std::int64_t> shape,
                     std::int64_t head_size,
                     std::vector<PartError>& parts) {
  const Slicing* const slicing = shape.empty() ? nullptr : slices.along(shape.size() - 1);
  if (head_size < 1 || slicing == nullptr || slicing->count % head_size != 0 ||
      slicing->count == head_size) {
    return;
  }
  const std::vector<SliceSums> heads = sum_groups(slices.of(*slicing), head_size);
  add_worst(
      heads, [](std::int64_t number) { return fmt::format("head {}", number); }, true, parts);
}

std::vector<PartError> worst_parts(const TensorPair& pair, std::int64_t head_size) {
  std::vector<PartError> parts;
  const Slices slices = sum_slices(pair);
  add_worst_heads(slices, pair.shape, head_size, parts);
  for (const Slicing& slicing : slices.slicings) {
    add_worst(
        slices.of(slicing),
        [&](std::int64_t number) { return name_of_part(slicing, number, pair.shape); },
        false,
        parts);
  }
  return parts;
}

}  // namespace

CloseLook look_closely(const Match& match, const Trace& candidate, std::int64_t head_size) {
  CloseLook result;
  const std::optional<Values> reference = merged_values(match.reference);
  if (!reference || match.candidate.empty() ||
      !std::ranges::all_of(match.candidate, has_elements)) {
    return result;
  }
  std::map<int, Coordinates> coordinates = coordinates_of(candidate, match.id.step);
  const Values ones{reference->shape, std::vector<double>(reference->data.size(), 1.0)};
  for (const Shard& shard : match.candidate) {
    if (shard.record->placement.logical_shape() == reference->shape) {
      result.ranks.push_back(error_of(shard, *reference, ones));
      result.ranks.back().coordinates = std::move(coordinates[shard.rank]);
    }
  }
  const MergeResult merged = merge(match.candidate);
  if (merged.has_tensor() && merged.shape == reference->shape) {
    result.parts = worst_parts(
        {merged.shape, ElementType::kF64, reference->data.data(), merged.type, merged.bytes.data()},
        head_size);
  }
  return result;
}

}  // namespace ttrace
