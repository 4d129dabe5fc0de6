// Products of linears with a backward that is not theirs.
//
// o outputs, i inputs of this rank.
//
// Thread-safety: none; one training thread.
#pragma once

#include "../collectives.h"

#include <ATen/core/Tensor.h>

namespace megatron_mini::faults {

// input [s, b, i], weight [o, i] -> [s, b, o]. The weight's gradient is computed from `saved`
// [s * b, i] as it is at that time.
[[nodiscard]] at::Tensor linear_with_saved_input(const at::Tensor& input,
                                                 const at::Tensor& saved,
                                                 const at::Tensor& weight);

// [s, b, i] -> [s * b, i]: a view of one buffer of the process, which the next call overwrites.
[[nodiscard]] at::Tensor kept_in_shared_buffer(const at::Tensor& input);

// input [s, b, i], weight [o, i] -> this rank's rows of the sum over ranks, [rows, b, o]. Backward
// joins what ranks get for the input from their own rows of the gradient and their own columns of
// the weight.
[[nodiscard]] at::Tensor linear_with_gradient_of_own_rows(const at::Tensor& input,
                                                          const at::Tensor& weight,
                                                          const Group& group);

}  // namespace megatron_mini::faults
