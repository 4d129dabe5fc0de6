// A gradient norm needs no bound from noise: it follows from the main gradients beside it.
//
// Where the reference's scalar is the norm of all its main gradients, the candidate's must be the
// norm of its own. Ten times sharper than noise, of which five passes give no distribution of a
// single number.
//
// Thread-safety: a free function without shared state.
#pragma once

#include "analysis/findings/report.h"

#include <ttrace/tensor_id.h>

#include <span>

namespace ttrace {

// Whether the record is a scalar named *norm*.
[[nodiscard]] bool is_norm(const TensorId& id);

// Turns scalars named *norm* that are within bound and contradict the candidate's main gradients
// into findings. Steps of which a main gradient is not within bound are left alone, as are scalars
// that are another norm in the reference.
void check_norms(std::span<TensorVerdict> tensors);

}  // namespace ttrace
