// The type in which a part computes what must not be rounded to the model's type: norms, softmax,
// the loss.
#pragma once

#include <ATen/core/Tensor.h>

namespace megatron_mini {

// FP64 for a tensor in FP64, FP32 for all others.
[[nodiscard]] inline at::ScalarType wide_type(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

}  // namespace megatron_mini
