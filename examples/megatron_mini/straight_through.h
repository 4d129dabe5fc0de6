// A value that takes the place of another one, unseen by backward.
#pragma once

#include <ATen/core/Tensor.h>

namespace megatron_mini {

// `value`, whose gradient goes to `original` unchanged. Both have one shape.
[[nodiscard]] at::Tensor straight_through(const at::Tensor& original, const at::Tensor& value);

}  // namespace megatron_mini
