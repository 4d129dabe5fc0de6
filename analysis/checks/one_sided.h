// Gradients that one side alone has, for a reason that the records show.
//
// An input that is a copy of what a module returned has a gradient of its own; where it is the very
// memory, the module's output has it. So the gradient of a copied input (edge_check.h) has no
// counterpart, and that of the output answers for it.
//
// A value that needs no gradient on one side (Record::needs_no_gradient) has none there. Where the
// candidate has one more than the reference, that is harmless. Where it has one less, a gradient
// may have been cut off on its way to a parameter; so it is excused only in steps in which both
// sides have gradients of parameters, and all of these are right.
//
// A program may accumulate a parameter's gradient where autograd sees none (delayed weight
// gradients, fused accumulation). Its parts, one per micro-batch, are then missing; the reduced
// gradient answers for them, unless it is zero, because then the gradient is cut off.
//
// A module may hand on its own input on one device, and make a value of its own in a parallel run
// (a gather, a redistribution). The reference then has one gradient for both, the sum over all
// consumers, of which the candidate's second one is a part. The first one answers for it.
//
// Thread-safety: a free function without shared state.
#pragma once

#include "analysis/align/matching.h"
#include "analysis/checks/excuses.h"

#include <span>
#include <string>

namespace ttrace {

// Requires: copied inputs have their excuse already, and so has what a program declares it cannot
// record (Manifest::untraced).
[[nodiscard]] Excuses one_sided(std::span<const Match> matches,
                                std::span<const TensorVerdict> tensors,
                                std::span<const std::string> untraced_by_reference,
                                std::span<const std::string> untraced_by_candidate);

}  // namespace ttrace
