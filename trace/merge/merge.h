// Merges the ranks' records of one id into the logical tensor, and checks their placements.
//
// Thread-safety: free functions without shared state; call from any thread.
#pragma once

#include "trace/merge/merge_result.h"
#include "trace/merge/shard.h"

#include <ttrace/element_type.h>
#include <ttrace/placement.h>

#include <span>

namespace ttrace {

// What a sketch says of a whole tensor, whichever of the two it has. Requires: has_values(), and a
// type that has a sketch.
[[nodiscard]] Sketch sketch_of(const MergeResult& tensor);

// Partial sums are added in double in the order of partial_index; scales are applied in double.
// Requires: all shards belong to one id, at least one; ascending ranks. Where a
// record's bytes were not kept, the sketches of all are added up (merge_sketches.h). Throws
// FormatError for a record whose bytes do not fit its shape.
[[nodiscard]] MergeResult merge(std::span<const Shard> shards);

// Zeroes what not both hold of a sparse dimension, so that values can be compared. Requires:
// tensors of one shape that are sparse in one dimension, or not at all.
void keep_common_rows(MergeResult& left, MergeResult& right);

// The opposite of merge: cuts one rank's local tensor out of a whole logical one; padding is zero.
// Requires: placement without partial sums. `target` holds the local tensor's bytes.
void extract(const Placement& placement, ElementType type, const void* logical, void* target);

}  // namespace ttrace
