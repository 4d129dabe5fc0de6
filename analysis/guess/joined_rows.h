// Finds parameters that one program has as one tensor and the other one in parts, by the values of
// their rows.
//
// Thread-safety: free functions without shared state.
#pragma once

#include "analysis/guess/pairings.h"

#include <ttrace/element_type.h>

namespace ttrace {

// Values are compared as those of this type.
void pair_joined_rows(GuessState& state, ElementType type);

}  // namespace ttrace
