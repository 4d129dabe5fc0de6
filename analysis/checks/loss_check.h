// A mean loss needs no bound from noise, because it follows from the recorded losses per token.
//
// If the reference's scalar is the mean of all its losses per token, computed again in f64, the
// candidate's must be the mean of its own. The micro-batch's data of
// Role::kLossMask decides which tokens count, if it was recorded. The mean is taken over all tokens
// of the step, or over the means of its micro-batches.
//
// Thread-safety: a free function without shared state.
#pragma once

#include "analysis/align/matching.h"
#include "analysis/align/model_vocabulary.h"
#include "analysis/bounds/allowance.h"
#include "analysis/findings/verdict.h"

#include <span>

namespace ttrace {

// Adds the check kMean to scalars of Role::kLoss that are within bound and equal the mean of the
// losses in the reference. The check fails if the candidate's scalar is not the mean of the
// candidate's losses. It skips steps in which a loss per token or a mask is out of bound, and
// scalars that are another number in the reference, such as one to which routers' losses were
// added.
void check_losses(std::span<const Match> matches,
                  std::span<TensorVerdict> tensors,
                  const ModelVocabulary& vocabulary,
                  const Allowances& allowances = {});

}  // namespace ttrace
