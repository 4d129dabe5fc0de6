// A gradient norm needs no bound from noise: it follows from the main gradients beside it.
//
// Where the reference's scalar is the norm of all its main gradients, the candidate's must be the
// norm of its own. Ten times sharper than noise, of which five passes give no distribution of a
// single number.
//
// Thread-safety: a free function without shared state.
#pragma once

#include "analysis/align/model_vocabulary.h"
#include "analysis/bounds/allowance.h"
#include "analysis/findings/verdict.h"

#include <span>

namespace ttrace {

// Adds the check kNorm to scalars of Role::kGradientNorm that are within bound and are, in the
// reference, the norm of all main gradients: it fails where the candidate's is not the norm of its
// own. Steps of which a main gradient is not within bound are left alone.
void check_norms(std::span<TensorVerdict> tensors,
                 const ModelVocabulary& vocabulary,
                 const Allowances& allowances = {});

}  // namespace ttrace
