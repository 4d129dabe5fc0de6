// The numbers of a tensor in double: of all ranks together, of one rank, or of a whole tensor where
// one rank's part of it lies.
//
// Thread-safety: plain values and free functions without shared state.
#pragma once

#include "trace/merge/merge.h"

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace ttrace {

// A tensor in double, row-major, its scale applied.
struct Values {
  std::vector<std::int64_t> shape;
  std::vector<double> data;

  [[nodiscard]] double norm() const;
};

// ||left - right||; Inf where the shapes differ.
[[nodiscard]] double distance(const Values& left, const Values& right);

[[nodiscard]] bool is_finite(const Values& values);

// The logical tensor; nothing if no rank recorded it, it is not whole, or NaN and Inf are in it.
[[nodiscard]] std::optional<Values> merged_values(std::span<const Shard> shards);

// One rank's local tensor, its scale applied, padding included.
[[nodiscard]] Values local_values(const Shard& shard);

// Whether this is the logical tensor: nothing of it is cut off or summed.
[[nodiscard]] bool holds_all(const Shard& shard);

// The elements of `whole` that the rank's part covers.
[[nodiscard]] std::vector<double> values_at(const Values& whole, const Shard& shard);

}  // namespace ttrace
