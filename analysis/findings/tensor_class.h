// Classes of tensors whose errors are alike, so that they share limits (analysis/bounds/limits.h).
#pragma once

#include <cstdint>

namespace ttrace {

enum class TensorClass : std::uint8_t {
  kActivation,
  kActivationGradient,
  kWeightGradient,   // gradients and moments of matrices
  kVector,           // gradients and moments of norms and biases: sums over all tokens
  kOptimizerMatrix,  // parameters after (or, past the first step, before) an update
  kOptimizerVector,
  kLoss,   // per token
  kScale,  // of quantised operands, and the histories they follow from: largest magnitudes
  kScalar,
};

}  // namespace ttrace
