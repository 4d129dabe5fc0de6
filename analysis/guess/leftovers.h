// Decides about what modules take and return that has no counterpart yet: the other program does
// not have it, or somebody has to say.
//
// That a tensor is on one side only is no finding in a check, so it must hide nothing: it is said
// of copies of tensors that are compared, and of tensors to which nothing on the other side can
// belong.
//
// Thread-safety: a free function without shared state.
#pragma once

#include "analysis/guess/agreement.h"
#include "analysis/guess/module_pairs.h"
#include "analysis/guess/pairings.h"

namespace ttrace {

void settle_leftovers(GuessState& state, const ModulePairs& modules, const Agreements& agreements);

}  // namespace ttrace
