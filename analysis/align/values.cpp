#include "analysis/align/values.h"

#include "trace/file/borrowed.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>
#include <utility>

namespace ttrace {
namespace {

Values widen(ElementType type, const std::vector<std::int64_t>& shape, const void* bytes) {
  Values values{shape, std::vector<double>(static_cast<std::size_t>(element_count(shape)))};
  to_double(type, bytes, std::ssize(values.data), values.data.data());
  return values;
}

}  // namespace

double norm(std::span<const double> numbers) {
  return std::sqrt(std::inner_product(numbers.begin(), numbers.end(), numbers.begin(), 0.0));
}

double distance(std::span<const double> left, std::span<const double> right) {
  if (left.size() != right.size()) {
    return std::numeric_limits<double>::infinity();
  }
  double squared = 0.0;
  for (std::size_t i = 0; i < left.size(); ++i) {
    squared += (left[i] - right[i]) * (left[i] - right[i]);
  }
  return std::sqrt(squared);
}

double distance(const Values& left, const Values& right) {
  return left.shape == right.shape ? distance(left.data, right.data)
                                   : std::numeric_limits<double>::infinity();
}

bool is_finite(const Values& values) {
  return std::all_of(
      values.data.begin(), values.data.end(), [](double value) { return std::isfinite(value); });
}

std::vector<double> rounded(std::span<const double> numbers, ElementType type) {
  const auto count = static_cast<std::int64_t>(numbers.size());
  std::vector<std::byte> bytes(numbers.size() * element_size(type));
  from_double(type, numbers.data(), count, bytes.data());
  std::vector<double> result(numbers.size());
  to_double(type, bytes.data(), count, result.data());
  return result;
}

Values values_of(const MergeResult& tensor) {
  return widen(tensor.type, tensor.shape, tensor.bytes.data());
}

std::optional<Values> merged_values(std::span<const Shard> shards) {
  if (shards.empty()) {
    return std::nullopt;
  }
  const MergeResult result = merge(shards);
  if (!result.has_tensor()) {
    return std::nullopt;
  }
  Values values = values_of(result);
  return is_finite(values) ? std::optional(std::move(values)) : std::nullopt;
}

Values local_values(const Shard& shard) {
  const Record& record = *shard.record;
  Values values = widen(record.type, record.shape, shard.bytes.data());
  for (double& value : values.data) {
    value *= record.placement.scale;
  }
  return values;
}

bool holds_all(const Shard& shard) {
  Placement placement = shard.record->placement;
  placement.scale = 1.0;
  return placement.is_whole();
}

std::vector<double> values_at(std::span<const double> whole, const Shard& shard) {
  Placement placement = shard.record->placement;
  placement.scale = 1.0;
  placement.partial_index = 0;
  placement.partial_count = 1;
  std::vector<double> values(static_cast<std::size_t>(element_count(shard.record->shape)));
  extract(placement, ElementType::kF64, whole.data(), values.data());
  return values;
}

std::optional<std::vector<double>> by_row(Values data, std::span<const std::int64_t> shape) {
  const std::span<const std::int64_t> rows = shape.first(std::min<std::size_t>(2, shape.size()));
  const bool is_turned = rows.size() == 2 && data.shape.size() == 2 && data.shape[0] == rows[1] &&
                         data.shape[1] == rows[0];
  if (std::ranges::equal(data.shape, shape) ||
      (!is_turned && std::ranges::equal(data.shape, rows))) {
    return std::move(data.data);
  }
  if (!is_turned) {
    return std::nullopt;
  }
  std::vector<double> turned(data.data.size());
  const auto rows_of_data = static_cast<std::size_t>(data.shape[0]);
  const auto columns = static_cast<std::size_t>(data.shape[1]);
  for (std::size_t i = 0; i < turned.size(); ++i) {
    turned[i] = data.data[i % rows_of_data * columns + i / rows_of_data];
  }
  return turned;
}

std::vector<int> ranks_holding(std::span<const Shard> shards,
                               const std::function<bool(const Rectangle&)>& touches) {
  std::vector<int> ranks;
  for (const Shard& shard : shards) {
    const bool is_new = ranks.empty() || ranks.back() != shard.rank;
    if (is_new && !is_borrowed(*shard.record) &&
        std::ranges::any_of(rectangles(shard.record->placement), touches)) {
      ranks.push_back(shard.rank);
    }
  }
  return ranks;
}

}  // namespace ttrace
