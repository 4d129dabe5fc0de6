// What no check says anything of, although none failed: nothing finite was compared, an error as
// large as the tensor would have passed, or the programs computed on other data.
//
// Thread-safety: free functions without shared state.
#pragma once

#include "analysis/bounds/noise.h"
#include "analysis/checks/excuses.h"
#include "analysis/findings/report.h"
#include "analysis/findings/verdict.h"
#include "trace/file/trace_reader.h"

#include <ttrace/tensor_id.h>

#include <optional>
#include <span>

namespace ttrace {

// Tensors without a finite element on either side, and tensors that differ within a bound on
// ||c - r|| that is larger than ||r||, unless the check of their operators, or FP64, judges them.
// What must be equal is judged by that.
[[nodiscard]] Excuses says_nothing(std::span<const TensorVerdict> tensors);

// The first tensor that the model is given in which candidate and reference differ by more than a
// quarter of its norm, as does the reference from its own repetition (the self-check, or else the
// noise passes, which change no data). Numbers drawn anew differ by 0.7 of their norm and more.
// Nothing if the programs read the same data, or nobody repeated the reference. `tensors`: in the
// reference's order.
[[nodiscard]] std::optional<TensorId> data_drawn_anew(const NoiseModel& noise,
                                                      std::span<const TensorVerdict> tensors);

// Whether a noise pass of this reference moved data, an input, an output or a loss by more than
// half of its norm. Then a second run without noise shows whether the reference repeats itself.
[[nodiscard]] bool noise_exceeds_tensors(const Trace& reference);

// Adds to report.not_seen how many tensors are not judged for one of these reasons.
void state_unjudged_values(Report& report);

}  // namespace ttrace
