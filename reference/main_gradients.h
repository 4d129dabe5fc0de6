// Main gradients: what the micro-batches of a step add up to, in high precision (precision.h).
//
// Thread-safety: use from the training thread.
#pragma once

#include <ttrace/session.h>

#include <vector>

namespace ttrace::reference {

class MainGradients {
 public:
  // Zeros, one tensor for each parameter.
  explicit MainGradients(std::vector<NamedTensor> parameters);

  void zero();
  // Adds what backward left in the parameters' `grad` and takes it away there, so that each
  // micro-batch's gradient stands alone.
  void add_micro_batch();

  void divide(double divisor);

  // Length of all gradients taken as one vector, summed in f64.
  [[nodiscard]] double norm() const;
  // Shortens all gradients by min(1, limit / (norm + 1e-6)).
  // Source: Pascanu, Mikolov and Bengio, "On the difficulty of training recurrent neural networks"
  // (2013), algorithm 1; the 1e-6 guards against a norm of zero.
  void clip(double norm, double limit);

  [[nodiscard]] const std::vector<NamedTensor>& tensors() const { return gradients_; }

 private:
  std::vector<NamedTensor> parameters_;
  std::vector<NamedTensor> gradients_;
};

}  // namespace ttrace::reference
