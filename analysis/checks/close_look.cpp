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
  const std::vector<double> is_held = values_at(ones, shard);
  const std::vector<double> expected = values_at(reference, shard);
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

std::vector<PartError> worst_parts(const TensorPair& pair) {
  std::vector<PartError> parts;
  const Slices slices = sum_slices(pair);
  for (const Slicing& slicing : slices.slicings) {
    std::vector<PartError> own;
    const std::span<const SliceSums> sums = slices.of(slicing);
    for (std::int64_t i = 0; i < slicing.count; ++i) {
      const SliceSums& slice = sums[static_cast<std::size_t>(i)];
      if (slice.difference_squared > 0.0) {
        own.push_back({name_of_part(slicing, i, pair.shape),
                       std::sqrt(slice.difference_squared),
                       std::sqrt(slice.reference_squared)});
      }
    }
    std::ranges::stable_sort(own, std::greater<>(), &PartError::error);
    own.resize(std::min(own.size(), kMostParts));
    parts.insert(parts.end(), own.begin(), own.end());
  }
  return parts;
}

}  // namespace

CloseLook look_closely(const Match& match, const Trace& candidate) {
  CloseLook result;
  const std::optional<Values> reference = merged_values(match.reference);
  if (!reference || match.candidate.empty()) {
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
    result.parts = worst_parts({merged.shape,
                                ElementType::kF64,
                                reference->data.data(),
                                merged.type,
                                merged.bytes.data()});
  }
  return result;
}

}  // namespace ttrace
