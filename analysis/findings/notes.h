// Notes of a report that follow from its verdicts alone.
//
// Thread-safety: free functions without shared state.
#pragma once

#include "analysis/findings/report.h"
#include "trace/merge/gradient_choice.h"

#include <span>

namespace ttrace {

// Adds a note where there is something to note, each of another kind of tensors.

// If the reference itself is inaccurate, a passed operator check says little.
void note_weak_operators(Report& report);
// Some scales differ without changing anything.
void note_harmless_scales(Report& report);
// Gradients that only one side has, and needs.
void note_one_sided(Report& report);
// Factors that were taken out of gradients, because the programs divide at other places.
void note_gradient_choices(std::span<const GradientChoice> choices, Report& report);

}  // namespace ttrace
