#include "analysis/infer/flat_ranges.h"

#include "analysis/infer/samples.h"
#include "trace/file/record.h"

#include <ttrace/element_type.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

namespace ttrace {
namespace {

// Elements compared of a rank.
constexpr std::int64_t kMostCompared = 4096;
// Those by which a beginning is looked for: the largest of the range.
constexpr std::size_t kLandmarks = 24;
// A longer parameter is not searched from end to end.
constexpr std::int64_t kMostSearched = std::int64_t{1} << 24;
// An error that explains most of the values, as of a right beginning.
constexpr double kAgrees = 0.5;

std::int64_t elements_of(const Placement& parameter) {
  std::int64_t elements = 1;
  for (const DimPlacement& dim : parameter.dims) {
    elements *= dim.local_size;
  }
  return elements;
}

// The reference's value at each element of a rank's parameter, in the order of its memory.
class LocalReference {
 public:
  LocalReference(const Placement& parameter, const MergeResult& reference)
      : parameter_(parameter), reference_(reference) {}

  // Padding has none.
  [[nodiscard]] std::optional<double> at(std::int64_t position) const {
    std::int64_t logical = 0;
    std::int64_t stride = 1;
    for (std::size_t dim = parameter_.dims.size(); dim > 0; --dim) {
      const DimPlacement& placed = parameter_.dims[dim - 1];
      const std::int64_t local = position % placed.local_size;
      position /= placed.local_size;
      const std::int64_t index = logical_index(placed, local);
      if (index == kPadding) {
        return std::nullopt;
      }
      logical += index * stride;
      stride *= placed.logical_size;
    }
    return element_at(reference_.type, reference_.bytes, logical);
  }

 private:
  const Placement& parameter_;
  const MergeResult& reference_;
};

void compare(const Shard& shard,
             const LocalReference& local,
             std::int64_t first,
             AgreementSums& sums) {
  const std::int64_t count = shard.record->shape.front();
  const std::int64_t step = std::max<std::int64_t>(1, count / kMostCompared);
  for (std::int64_t i = 0; i < count; i += step) {
    if (const auto expected = local.at(first + i)) {
      sums.add(element_at(shard.record->type, shard.bytes, i), *expected);
    }
  }
}

// Ranges one after the other, of ranks that hold the same part of the parameter. Empty if they
// do not make it up.
std::vector<FlatRange> consecutive(std::span<const Shard> shards,
                                   std::span<const Placement> parameters) {
  std::vector<FlatRange> ranges(shards.size());
  for (std::size_t i = 0; i < shards.size(); ++i) {
    std::int64_t first = 0;
    std::int64_t all = 0;
    for (std::size_t other = 0; other < shards.size(); ++other) {
      if (parameters[other].dims == parameters[i].dims) {
        first += other < i ? shards[other].record->shape.front() : 0;
        all += shards[other].record->shape.front();
      }
    }
    if (all != elements_of(parameters[i])) {
      return {};
    }
    ranges[i] = {first, shards[i].record->shape.front()};
  }
  return ranges;
}

// Uses the largest elements, which decide most.
std::vector<std::int64_t> landmarks(const Shard& shard) {
  const std::int64_t count = shard.record->shape.front();
  const std::int64_t step = std::max<std::int64_t>(1, count / kMostCompared);
  std::vector<std::pair<double, std::int64_t>> values;
  for (std::int64_t i = 0; i < count; i += step) {
    values.emplace_back(-std::abs(element_at(shard.record->type, shard.bytes, i)), i);
  }
  const std::size_t kept = std::min(kLandmarks, values.size());
  std::partial_sort(
      values.begin(), values.begin() + static_cast<std::ptrdiff_t>(kept), values.end());
  std::vector<std::int64_t> positions;
  for (std::size_t i = 0; i < kept; ++i) {
    positions.push_back(values[i].second);
  }
  return positions;
}

// The beginning at which the landmarks agree best.
std::optional<std::int64_t> search(const Shard& shard,
                                   const Placement& parameter,
                                   const MergeResult& reference) {
  const std::int64_t count = shard.record->shape.front();
  const std::int64_t elements = elements_of(parameter);
  if (count == 0 || count > elements || elements > kMostSearched) {
    return std::nullopt;
  }
  const LocalReference local(parameter, reference);
  std::vector<std::pair<std::int64_t, double>> marks;
  for (const std::int64_t position : landmarks(shard)) {
    marks.emplace_back(position, element_at(shard.record->type, shard.bytes, position));
  }
  std::optional<std::int64_t> best;
  double least = kAgrees;
  for (std::int64_t first = 0; first <= elements - count; ++first) {
    AgreementSums sums;
    for (const auto& [position, value] : marks) {
      if (const auto expected = local.at(first + position)) {
        sums.add(value, *expected);
      }
    }
    if (const double error = sums.agreement().error; error < least) {
      least = error;
      best = first;
    }
  }
  return best;
}

}  // namespace

FlatFits find_flat_ranges(std::span<const Shard> shards,
                          std::span<const Placement> parameters,
                          const MergeResult& reference) {
  const auto agreement = [&](const std::vector<FlatRange>& ranges) {
    AgreementSums sums;
    for (std::size_t i = 0; i < ranges.size(); ++i) {
      compare(shards[i], {parameters[i], reference}, ranges[i].first, sums);
    }
    return sums.agreement();
  };
  const auto fits = [&](std::vector<FlatRange> ranges) {
    const Agreement found = agreement(ranges);
    const bool as_is = found.error_as_is <= 1.1 * found.error;
    return FlatFits{std::move(ranges), found.error, as_is ? 1.0 : found.factor, !found.both_zero};
  };
  const std::vector<FlatRange> expected = consecutive(shards, parameters);
  if (!expected.empty()) {
    FlatFits found = fits(expected);
    if (found.error < kAgrees) {
      return found;
    }
  }
  std::vector<FlatRange> ranges;
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const auto first = search(shards[i], parameters[i], reference);
    if (!first) {
      return {{}, std::numeric_limits<double>::infinity()};
    }
    ranges.push_back({*first, shards[i].record->shape.front()});
  }
  return fits(std::move(ranges));
}

double flat_error(std::span<const Shard> shards,
                  std::span<const Placement> parameters,
                  std::span<const FlatRange> ranges,
                  const MergeResult& reference) {
  AgreementSums sums;
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const std::int64_t elements = elements_of(parameters[i]);
    if (ranges[i].first < 0 || ranges[i].count != shards[i].record->shape.front() ||
        ranges[i].count > elements - ranges[i].first) {
      return std::numeric_limits<double>::infinity();
    }
    compare(shards[i], {parameters[i], reference}, ranges[i].first, sums);
  }
  return sums.agreement().error_as_is;
}

}  // namespace ttrace
