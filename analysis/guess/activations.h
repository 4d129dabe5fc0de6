// Pairs what modules take and return, data, and the loss.
//
// Thread-safety: free functions without shared state.
#pragma once

#include "analysis/guess/agreement.h"
#include "analysis/guess/module_pairs.h"
#include "analysis/guess/pairings.h"

namespace ttrace {

void pair_activations(GuessState& state, const ModulePairs& modules, const Agreements& agreements);

}  // namespace ttrace
