// What no check says anything of, although none failed: nothing finite was compared, or an error as
// large as the tensor would have passed.
//
// Thread-safety: free functions without shared state.
#pragma once

#include "analysis/checks/excuses.h"
#include "analysis/findings/report.h"
#include "analysis/findings/verdict.h"
#include "trace/file/trace_reader.h"

#include <span>

namespace ttrace {

// Tensors without a finite element on either side, and tensors that differ within a bound on
// ||c - r|| that is larger than ||r||, unless the check of their operators, or FP64, judges them.
// What must be equal is judged by that.
[[nodiscard]] Excuses says_nothing(std::span<const TensorVerdict> tensors);

// Whether a noise pass of this reference moved data, an input, an output or a loss by more than
// half of its norm. Then a second run without noise shows whether the reference repeats itself.
[[nodiscard]] bool noise_exceeds_tensors(const Trace& reference);

// Adds to report.not_seen how many tensors are not judged for one of these reasons.
void state_unjudged_values(Report& report);

}  // namespace ttrace
