// Pairs parameters whose values are equal, in any arrangement, and those that one program has in
// parts. Where several have equal values (norms that begin with ones, tied weights), their
// gradients decide, if the programs ran on the same data.
//
// Thread-safety: free functions without shared state.
#pragma once

#include "analysis/guess/pairings.h"

namespace ttrace {

void pair_equal_parameters(GuessState& state);

}  // namespace ttrace
