// A logical tensor, put together from what ranks hold of it.
//
// Thread-safety: plain values.
#pragma once

#include "trace/base/index_set.h"
#include "trace/file/record.h"
#include "trace/merge/merge_finding.h"
#include "trace/sums/sketch.h"

#include <ttrace/element_type.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace ttrace {

// Rows of a sparse dimension that at least one rank holds; the others are zero.
struct HeldRows {
  std::size_t dim = 0;
  IndexSet rows;

  bool operator==(const HeldRows&) const = default;
};

struct MergeResult {
  MergeResult() = default;
  MergeResult(const MergeResult&) = delete;  // `bytes` of the copy would lie in the other's storage
  MergeResult& operator=(const MergeResult&) = delete;
  MergeResult(MergeResult&&) = default;
  MergeResult& operator=(MergeResult&&) = default;
  ~MergeResult() = default;

  ElementType type = ElementType::kF32;  // of `bytes`; kF64 where partial sums were added or scaled
  std::vector<std::int64_t> shape;       // logical
  std::span<const std::byte> bytes;      // whole tensor, row-major; empty if `findings` prevents it
  std::vector<std::byte> storage;        // owns `bytes` unless one shard is the whole tensor
  std::optional<Sketch> sketch = {};     // in place of `bytes` where sketches were kept
  std::optional<HeldRows> held;          // nothing where no dimension is sparse: all rows are there
  std::vector<MergeFinding> findings;

  // There can be both findings and values: replicas that disagree leave the lowest rank's value.
  // A tensor without elements has no bytes, and is there unless its shards contradict each other.
  [[nodiscard]] bool has_tensor() const {
    return !bytes.empty() || (element_count(shape) == 0 && findings.empty());
  }
  // Whether it is known, by its elements or by a sketch.
  [[nodiscard]] bool has_values() const { return has_tensor() || sketch.has_value(); }
  [[nodiscard]] std::string why_absent() const {
    return !findings.empty() ? findings.front().message
           : sketch          ? "a sketch was kept of it, and none of its elements"
                             : "it has no values";
  }
};

}  // namespace ttrace
