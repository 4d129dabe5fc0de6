// What one side alone keeps from step to step: states of its optimizer that the other one does not
// have under that name (a counter per parameter, where the other optimizer has one for all), and
// buffers of modules; and masters of a candidate whose reference has none. Training follows from
// values, which are compared; that another program keeps something else next to them is no error by
// itself.
//
// A state that both sides have of some parameters, but of this one on one side only, stays a
// finding. So does one that both sides have after the step, and one side alone before it: a
// checkpoint lost it.
//
// Thread-safety: free functions without shared state.
#pragma once

#include "analysis/checks/excuses.h"
#include "analysis/findings/not_seen.h"

#include <span>
#include <vector>

namespace ttrace {

[[nodiscard]] Excuses one_sided_states(std::span<const TensorVerdict> tensors);

// What the tensors that one_sided_states() has excused leave unseen, a sentence for every side and
// name. Requires: the tensors have their excuses.
[[nodiscard]] std::vector<UnseenPart> unseen_states(std::span<const TensorVerdict> tensors);

}  // namespace ttrace
