// Merges the ranks' records of one id into the logical tensor, and checks their placements.
//
// Thread-safety: free functions without shared state; call from any thread.
#pragma once

#include "trace/base/index_set.h"
#include "trace/merge/merge_finding.h"
#include "trace/merge/shard.h"

#include <ttrace/element_type.h>
#include <ttrace/placement.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
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
  std::optional<HeldRows> held;          // nothing where no dimension is sparse: all rows are there
  std::vector<MergeFinding> findings;

  // There can be both findings and a tensor: replicas that disagree leave the lowest rank's value.
  // A tensor without elements has no bytes, and is there unless its shards contradict each other.
  [[nodiscard]] bool has_tensor() const {
    return !bytes.empty() || (element_count(shape) == 0 && findings.empty());
  }
  [[nodiscard]] std::string why_absent() const {
    return findings.empty() ? "it has no values" : findings.front().message;
  }
};

// Partial sums are added in double in the order of partial_index; scales are applied in double.
// Requires: all shards belong to one id, at least one; ascending ranks. Throws FormatError for a
// record whose bytes do not fit its shape.
[[nodiscard]] MergeResult merge(std::span<const Shard> shards);

// Zeroes what not both hold of a sparse dimension, so that values can be compared. Requires:
// tensors of one shape that are sparse in one dimension, or not at all.
void keep_common_rows(MergeResult& left, MergeResult& right);

// The opposite of merge: cuts one rank's local tensor out of a whole logical one; padding is zero.
// Requires: placement without partial sums. `target` holds the local tensor's bytes.
void extract(const Placement& placement, ElementType type, const void* logical, void* target);

}  // namespace ttrace
