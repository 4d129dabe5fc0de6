// The micro-batches' parts of a parameter's gradient, computed again.
//
// Thread-safety: free functions without shared state.
#pragma once

#include "analysis/causes/common/addends.h"

namespace ttrace {

// One addend for every micro-batch of the finding, the main gradient of a linear's, an embedding's
// or a norm's weight, from what the candidate's module took and returned, and from its gradient.
// FSDP2 and zero-bubble schedules keep gradients of single micro-batches to themselves. None where
// a record is missing, or where they do not add up to `reference`.
[[nodiscard]] AddendColumns remade_addends(const Evidence& evidence, const Values& reference);

}  // namespace ttrace
