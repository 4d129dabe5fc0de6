// Shards made by hand, and a slow, plain way to find where their elements lie.
#pragma once

#include "trace/merge/merge.h"

#include <cstdint>
#include <deque>
#include <functional>
#include <numeric>
#include <utility>
#include <vector>

namespace ttrace::testing {

// The shards of one tensor and what keeps them alive.
class Ranks {
 public:
  // The local values in row-major order; padding included.
  Shard& add(Placement placement, ElementType type, const std::vector<double>& local) {
    Record& record = records_.emplace_back();
    record.id.path = "layer";
    record.type = type;
    record.shape = placement.local_shape();
    record.placement = std::move(placement);
    std::vector<std::byte>& bytes = bytes_.emplace_back(local.size() * element_size(type));
    from_double(type, local.data(), static_cast<std::int64_t>(local.size()), bytes.data());
    return shards_.emplace_back(Shard{static_cast<int>(shards_.size()), &record, bytes});
  }
  void remove_if(const std::function<bool(const Shard&)>& condition) {
    std::erase_if(shards_, condition);
  }
  [[nodiscard]] Record& record(int rank) { return records_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] std::vector<std::byte>& bytes(int rank) {
    return bytes_[static_cast<std::size_t>(rank)];
  }
  [[nodiscard]] std::vector<Shard>& shards() { return shards_; }
  [[nodiscard]] MergeResult merge() const { return ttrace::merge(shards_); }

 private:
  std::deque<Record> records_;  // a deque keeps addresses
  std::deque<std::vector<std::byte>> bytes_;
  std::vector<Shard> shards_;
};

inline std::vector<double> values_of(const MergeResult& result) {
  std::vector<double> values(result.bytes.size() / element_size(result.type));
  to_double(
      result.type, result.bytes.data(), static_cast<std::int64_t>(values.size()), values.data());
  return values;
}

inline std::vector<double> counting(std::size_t count) {
  std::vector<double> values(count);
  std::iota(values.begin(), values.end(), 0.0);
  return values;
}

// Logical index of every local index of one dimension, -1 for padding.
inline std::vector<std::int64_t> logical_indices(const DimPlacement& dim) {
  std::vector<std::int64_t> indices(static_cast<std::size_t>(dim.local_size), -1);
  for (const Segment& segment : dim.segments) {
    for (std::int64_t i = 0; i < segment.extent; ++i) {
      indices[static_cast<std::size_t>(segment.local + i)] = segment.logical + i;
    }
  }
  return indices;
}

// Offset in the logical tensor of every local element, -1 for padding: the slow, plain way.
inline std::vector<std::int64_t> logical_offsets(const Placement& placement) {
  std::vector<std::int64_t> offsets{0};
  for (const DimPlacement& dim : placement.dims) {
    std::vector<std::int64_t> finer;
    for (const std::int64_t outer : offsets) {
      for (const std::int64_t index : logical_indices(dim)) {
        finer.push_back(outer < 0 || index < 0 ? -1 : outer * dim.logical_size + index);
      }
    }
    offsets = std::move(finer);
  }
  if (placement.flat) {
    const auto first = offsets.begin() + placement.flat->first;
    return {first, first + placement.flat->count};
  }
  return offsets;
}

}  // namespace ttrace::testing
