// Addends of ranks that do not have a parameter.
//
// A gradient is a sum over the ranks of an axis, as declared or guessed for all parameters. A rank
// that has no record of a parameter at all, such as an expert that only one rank holds, adds
// nothing to its gradient. A rank that has the parameter, but no gradient of it, is still missing.
//
// Thread-safety: a free function without shared state.
#pragma once

#include "trace/file/trace_reader.h"

namespace ttrace {

// Numbers the addends of parameters' gradients without those of ranks that lack the parameter.
void leave_out_absent_addends(Trace& trace);

}  // namespace ttrace
