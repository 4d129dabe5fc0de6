// A logical tensor's values laid over the part of it that a rank holds.
//
// Thread-safety: a free function without shared state; call from any thread.
#pragma once

#include "hooks/base/tensor_copy.h"
#include "trace/merge/merge.h"

#include <ttrace/placement.h>

#include <cstddef>
#include <vector>

namespace ttrace {

// The bytes of `current` with all that is no padding replaced by what `placement` says of
// `logical`, converted to the type of `current` and divided by the placement's scale. Requires:
// placement without partial sums, of the shape of `logical`.
[[nodiscard]] std::vector<std::byte> overlay(const TensorCopy& current,
                                             const Placement& placement,
                                             const MergeResult& logical);

}  // namespace ttrace
