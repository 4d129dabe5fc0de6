// Writes a logical tensor's values over the part of it that a rank holds.
//
// Thread-safety: a free function without shared state; call from any thread.
#pragma once

#include "hooks/base/tensor_copy.h"
#include "trace/merge/merge.h"

#include <ttrace/placement.h>

#include <cstddef>
#include <vector>

namespace ttrace {

// The bytes of `current`. Everything but padding is replaced by the values of `logical` at
// `placement`, converted to the type of `current` and divided by the placement's scale. Requires: a
// placement without partial sums and with the shape of `logical`.
[[nodiscard]] std::vector<std::byte> overlay(const TensorCopy& current,
                                             const Placement& placement,
                                             const MergeResult& logical);

}  // namespace ttrace
