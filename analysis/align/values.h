// The numbers of a tensor in double: of all ranks together, of one rank, or of a whole tensor where
// one rank's part of it lies.
//
// Thread-safety: plain values and free functions without shared state.
#pragma once

#include "trace/merge/merge.h"
#include "trace/place/boxes.h"

#include <ttrace/element_type.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

namespace ttrace {

[[nodiscard]] double norm(std::span<const double> numbers);

// A tensor in double, row-major, its scale applied.
struct Values {
  std::vector<std::int64_t> shape;
  std::vector<double> data;

  [[nodiscard]] double norm() const { return ttrace::norm(data); }
};

// ||left - right||; Inf where the shapes, or the numbers of elements, differ.
[[nodiscard]] double distance(const Values& left, const Values& right);
[[nodiscard]] double distance(std::span<const double> left, std::span<const double> right);

[[nodiscard]] bool is_finite(const Values& values);

// The numbers after they were stored as `type`.
[[nodiscard]] std::vector<double> rounded(std::span<const double> numbers, ElementType type);

// Requires: a tensor.
[[nodiscard]] Values values_of(const MergeResult& tensor);
// The logical tensor; nothing if no rank recorded it, it is not whole, or NaN and Inf are in it.
[[nodiscard]] std::optional<Values> merged_values(std::span<const Shard> shards);

// One rank's local tensor, its scale applied, padding included.
[[nodiscard]] Values local_values(const Shard& shard);

// Whether this is the logical tensor: nothing of it is cut off or summed.
[[nodiscard]] bool holds_all(const Shard& shard);

// The elements of `whole`, a logical tensor, that the rank's part covers.
[[nodiscard]] std::vector<double> values_at(std::span<const double> whole, const Shard& shard);

// What data say of the rows of a tensor of `shape`: `data` as they are where they have that shape,
// else a number for each index of its first two dimensions. Activations are [s, b, h] where data
// are [b, s]; losses may have either order. Nothing where data fit in neither.
[[nodiscard]] std::optional<std::vector<double>> by_row(Values data,
                                                        std::span<const std::int64_t> shape);

// The ranks that hold a box of the logical tensor for which `touches` is true.
[[nodiscard]] std::vector<int> ranks_holding(std::span<const Shard> shards,
                                             const std::function<bool(const Rectangle&)>& touches);

}  // namespace ttrace
