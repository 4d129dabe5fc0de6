// Planted bugs of the positions by which rotary embedding turns queries and keys.
//
// Thread-safety: free functions without shared state.
#pragma once

#include "bugs.h"
#include "collectives.h"
#include "token_places.h"

#include <ATen/core/Tensor.h>

namespace megatron_mini {

// Those of this rank's tokens, [s, b]: places.positions, or with a bug others.
[[nodiscard]] at::Tensor rotary_positions(const TokenPlaces& places,
                                          const Group& cp,
                                          const Bugs& bugs);

}  // namespace megatron_mini
