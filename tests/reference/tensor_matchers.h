// The distance of two tensors, as numbers that a failed test prints.
#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>

#include <limits>

namespace ttrace::testing {

// Largest absolute difference; infinite where the shapes differ.
inline double max_difference(const at::Tensor& a, const at::Tensor& b) {
  if (a.sizes() != b.sizes()) {
    return std::numeric_limits<double>::infinity();
  }
  return (a.detach().to(at::kDouble) - b.detach().to(at::kDouble)).abs().max().item<double>();
}

// |a - b| / |b| in the Euclidean norm.
inline double relative_difference(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor exact = b.detach().to(at::kDouble);
  return ((a.detach().to(at::kDouble) - exact).norm() / exact.norm()).item<double>();
}

}  // namespace ttrace::testing
