// Pairs parameters that no value decides: both programs run the same modules in the same order, so
// the two sequences of modules that own parameters are aligned by their shapes. Only what all best
// alignments have in common is a guess. Modules that take the same tensor and have the same shapes
// could as well run in another order, and have each other's names, so they stay open.
//
// Thread-safety: free functions without shared state.
#pragma once

#include "analysis/guess/pairings.h"

namespace ttrace {

// Asks for what could be one of several.
void pair_by_order(GuessState& state);

}  // namespace ttrace
