// The two element types of a run: what tensors are kept in, and what is computed where kept digits
// are not enough (softmax, rotary positions, cross entropy, gradient sums, the optimizer).
#pragma once

#include "config.h"

#include <c10/core/ScalarType.h>
#include <c10/core/TensorOptions.h>

namespace ttrace::reference {

// The type of parameters and activations.
[[nodiscard]] inline c10::ScalarType working_type(Precision precision) {
  switch (precision) {
    case Precision::kF64:
      return c10::kDouble;
    case Precision::kF32:
    case Precision::kFp8F32:
      return c10::kFloat;
    case Precision::kBf16:
    case Precision::kFp8:
      return c10::kBFloat16;
  }
  return c10::kFloat;
}

// f64 for f64, else f32.
[[nodiscard]] inline c10::ScalarType high_precision(c10::ScalarType working) {
  return working == c10::kDouble ? c10::kDouble : c10::kFloat;
}

// On the same device.
[[nodiscard]] inline c10::TensorOptions in_high_precision(const c10::TensorOptions& working) {
  return working.dtype(high_precision(c10::typeMetaToScalarType(working.dtype())));
}

}  // namespace ttrace::reference
