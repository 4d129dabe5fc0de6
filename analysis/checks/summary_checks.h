// Scalars that summarise tensors need no bound from noise, because they follow from what was
// recorded: a gradient norm from the main gradients, a mean loss from the losses per token.
//
// If the reference's scalar is that of its own tensors, the candidate's must be that of the
// candidate's. For norms this is ten times sharper than noise, of which five passes give no
// distribution of a single number.
//
// Means are computed again in f64. The micro-batch's data of Role::kLossMask decides which tokens
// count, if it was recorded. The mean is taken over all tokens of the step, or over the means of
// its micro-batches.
//
// Thread-safety: free functions without shared state.
#pragma once

#include "analysis/align/matching.h"
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
                 const Allowances& allowances);

// Adds the check kMean to scalars of Role::kLoss that are within bound and equal the mean of the
// losses in the reference. The check fails if the candidate's scalar is not the mean of the
// candidate's losses. It skips steps in which a loss per token or a mask is out of bound, and
// scalars that are another number in the reference, such as one to which routers' losses were
// added.
void check_losses(std::span<const Match> matches,
                  std::span<TensorVerdict> tensors,
                  const ModelVocabulary& vocabulary,
                  const Allowances& allowances);

// Torch's norm on CPUs adds squares up one after the other: of half a million F32 elements it is
// wrong by 3e-5, and by another number where a shard has half of them. Noise passes do not show
// that. If a step's norm is that of the main gradients on both sides, up to 2^-24 times the root of
// their number, then the scalar, and what the optimizer makes of gradients that it clips, may
// differ as much as the two norms do, and twice where squares are kept.
[[nodiscard]] Excuses behind_norms(std::span<const TensorVerdict> tensors,
                                   const ModelVocabulary& vocabulary,
                                   const Allowances& allowances);

}  // namespace ttrace
