// Whether a rename map says of a tensor what the guess knows of it.
//
// Thread-safety: free functions without shared state.
#pragma once

#include "analysis/guess/pairings.h"
#include "analysis/rename/rename_map.h"

namespace ttrace {

// The same counterparts and the same arrangement, asked from either side.
[[nodiscard]] bool says(const RenameMap& map, const GuessState& state, const Pairing& pairing);

// No tensor that the other side has.
[[nodiscard]] bool leaves_open(const RenameMap& map, const GuessState& state, const OpenUnit& open);

}  // namespace ttrace
