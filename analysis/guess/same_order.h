// Pairs parameters that no value decides: the two sequences of modules that own parameters are
// aligned by their shapes, and a module is paired if nothing else can have run in its place.
// Modules of one shape of which none needs the other can run in any order, and have any names, so
// they stay open.
//
// Thread-safety: free functions without shared state.
#pragma once

#include "analysis/guess/pairings.h"

namespace ttrace {

// Asks for what could be one of several.
void pair_by_order(GuessState& state);

}  // namespace ttrace
