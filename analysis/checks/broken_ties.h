// Parameters that one program has under two names and the other one twice.
//
// Thread-safety: free function without shared state.
#pragma once

#include "analysis/findings/verdict.h"

#include <span>
#include <string>

namespace ttrace {

// Adds to what is said of a parameter's tensors that one side lacks, if that side has the parameter
// under another name (ties.json in its folder): the tie is broken, or there is one too many.
void explain_ties(const std::string& reference,
                  const std::string& candidate,
                  std::span<TensorVerdict> tensors);

}  // namespace ttrace
