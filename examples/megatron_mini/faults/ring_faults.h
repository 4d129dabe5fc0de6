// What wrong steps of ring attention do with tensors.
//
// Thread-safety: pure functions.
#pragma once

#include <ATen/core/Tensor.h>

namespace megatron_mini::faults {

// [2, b, g, 1, s, d] of which the memory was written as [2, b, s, g, d], read as [2, b, g, s, d].
[[nodiscard]] at::Tensor with_heads_and_rows_swapped(const at::Tensor& key_value);

// Rounds to a mantissa of so many bits behind the leading one, to even; infinities stay.
[[nodiscard]] at::Tensor rounded_to_bits(const at::Tensor& tensor, int mantissa_bits);

}  // namespace megatron_mini::faults
