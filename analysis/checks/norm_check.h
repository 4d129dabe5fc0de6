// A gradient norm needs no bound from noise, because it follows from the recorded main gradients.
//
// If the reference's scalar is the norm of all its main gradients, the candidate's must be the norm
// of its own. This is ten times sharper than noise, of which five passes give no distribution of a
// single number.
//
// Thread-safety: a free function without shared state.
#pragma once

#include "analysis/align/model_vocabulary.h"
#include "analysis/bounds/allowance.h"
#include "analysis/checks/excuses.h"
#include "analysis/findings/verdict.h"

#include <ttrace/element_type.h>

#include <span>

namespace ttrace {

// Adds the check kNorm to scalars of Role::kGradientNorm that are within bound and equal the norm
// of all main gradients in the reference. The check fails if the candidate's scalar is not the norm
// of the candidate's gradients. It skips steps in which a main gradient is out of bound.
// `precision`: the type that gradients may have, whose rounding a norm of this type is granted.
void check_norms(std::span<TensorVerdict> tensors,
                 const ModelVocabulary& vocabulary,
                 ElementType precision,
                 const Allowances& allowances = {});

// Torch's norm on CPUs adds squares up one after the other: of half a million F32 elements it is
// wrong by 3e-5, and by another number where a shard has half of them. Noise passes do not show
// that. If a step's norm is that of the main gradients on both sides, up to 2^-24 times the root of
// their number, then the scalar, and what the optimizer makes of gradients that it clips, may
// differ as much as the two norms do, and twice where squares are kept.
[[nodiscard]] Excuses behind_norms(std::span<const TensorVerdict> tensors,
                                   const ModelVocabulary& vocabulary,
                                   const Allowances& allowances = {});

}  // namespace ttrace
