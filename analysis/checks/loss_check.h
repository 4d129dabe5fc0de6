// A mean loss needs no bound from noise: it follows from the losses per token beside it.
//
// Where the reference's scalar is the mean of all its losses per token, computed again in f64, the
// candidate's must be the mean of its own. Tokens count as the micro-batch's data of
// Role::kLossMask say, where there are any; the mean is that over all tokens of the step, or the
// mean over micro-batches of each one's.
//
// Thread-safety: a free function without shared state.
#pragma once

#include "analysis/align/matching.h"
#include "analysis/align/model_vocabulary.h"
#include "analysis/bounds/allowance.h"
#include "analysis/findings/verdict.h"

#include <span>

namespace ttrace {

// Adds the check kMean to scalars of Role::kLoss that are within bound and are, in the reference,
// the mean of its losses: it fails where the candidate's is not the mean of its own. Steps of which
// a loss per token or a mask is not within bound are left alone, as are scalars that are another
// number in the reference, such as one that routers' losses were added to.
void check_losses(std::span<const Match> matches,
                  std::span<TensorVerdict> tensors,
                  const ModelVocabulary& vocabulary,
                  const Allowances& allowances = {});

}  // namespace ttrace
