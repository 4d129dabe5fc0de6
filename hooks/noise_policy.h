// Perturbs what operators return, in noise passes.
//
// Composite operators nest (linear > matmul > mm); a value is perturbed once, by the innermost
// operator that returns its storage. The result is changed in place behind autograd's back, so
// that backward sees what forward handed on.
//
// Thread-safety: call from any thread; repeatable where operators run in one order.
#pragma once

#include <ATen/core/Tensor.h>

#include "perturbation.h"

#include <atomic>
#include <cstdint>
#include <vector>

namespace ttrace {

class NoisePolicy {
 public:
  explicit NoisePolicy(std::uint64_t seed) : seed_(seed), step_seed_(seed) {}

  void begin_step(std::int64_t step);
  // Returns whether the tensor was of a kind that is perturbed.
  bool apply(const at::Tensor& tensor, NoiseClass noise);
  // Order in which a micro-batch's samples are fed.
  [[nodiscard]] std::vector<std::int64_t> order(std::int64_t samples,
                                                std::int64_t microbatch) const;

 private:
  const std::uint64_t seed_;
  std::uint64_t step_seed_;
  std::atomic<std::uint64_t> ordinal_{0};  // of the perturbed tensor within the step
};

}  // namespace ttrace
