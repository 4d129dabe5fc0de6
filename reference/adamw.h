// AdamW: Adam whose weight decay acts on the parameters and not through the gradient.
//
//   p <- p - lr wd p                       (matrices only)
//   m <- b1 m + (1 - b1) g
//   v <- b2 v + (1 - b2) g^2
//   p <- p - lr (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + epsilon)
//
// Sources: Kingma and Ba, "Adam: a method for stochastic optimization" (2015), algorithm 1;
// Loshchilov and Hutter, "Decoupled weight decay regularization" (2019), algorithm 2, with the
// learning rate as the schedule multiplier of the decay.
//
// Thread-safety: use from the training thread.
#pragma once

#include "config.h"

#include <ttrace/session.h>

#include <cstdint>
#include <vector>

namespace ttrace::reference {

class AdamW {
 public:
  // Copies BF16 parameters to f32 masters; parameters of other types are their own masters.
  AdamW(const std::vector<NamedTensor>& parameters, const OptimizerConfig& config);

  // One update by the gradients, which come in the order of the parameters and in the masters'
  // type. A BF16 parameter becomes its master, rounded.
  void step(const std::vector<NamedTensor>& gradients);

  // State after the last step; `master` is undefined where a parameter is its own.
  [[nodiscard]] const std::vector<OptimizerEntry>& entries() const { return entries_; }

 private:
  OptimizerConfig config_;
  std::int64_t steps_ = 0;  // t
  std::vector<OptimizerEntry> entries_;
};

}  // namespace ttrace::reference
