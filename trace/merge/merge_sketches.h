// merge() for records of which sketches were kept: the sketch of the logical tensor.
//
// Thread-safety: a free function without shared state; call from any thread.
#pragma once

#include "trace/merge/merge_result.h"
#include "trace/merge/shard.h"

#include <span>

namespace ttrace {

// The result has a sketch and no bytes; of several addends one without exact squares. Replicas must
// have one digest; the lowest rank's sketch counts. Requires: all shards belong to one id, at least
// one, and its type has a sketch; ascending ranks. Throws FormatError for a placement that
// contradicts itself.
[[nodiscard]] MergeResult merge_sketches(std::span<const Shard> shards);

}  // namespace ttrace
