// In which element type a program computes, whatever it keeps its parameters in.
//
// Thread-safety: free functions without shared state.
#pragma once

#include "trace/file/trace_reader.h"

#include <string>

namespace ttrace {

// "bf16": the floating type of most outputs of modules on the first rank that has any. Empty where
// that is the type in which the trace's precision keeps its parameters, and of a trace without
// outputs.
[[nodiscard]] std::string other_activation_type(const Trace& trace);

}  // namespace ttrace
