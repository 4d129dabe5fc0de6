// AdamW over high-precision copies of the parameters.
//
// BF16 parameters have f32 masters, and a step ends by rounding them; f32 and f64 parameters are
// their own masters. Weight decay applies to tensors of two dimensions and more.
//
// Thread-safety: none; one training thread.
#pragma once

#include "bugs.h"
#include "config.h"
#include "gpt_model.h"

#include <ttrace/session.h>

#include <torch/optim/adamw.h>

#include <memory>
#include <vector>

namespace megatron_mini {

class MixedPrecisionOptimizer {
 public:
  // Copies masters from the parameters' present values. `gradients` are read by every step.
  MixedPrecisionOptimizer(std::vector<ModelParameter> parameters,
                          std::vector<at::Tensor> gradients,
                          const OptimizerConfig& config,
                          const Bugs& bugs);

  void step();

  // Masters (where they are copies) and moments after a step. Requires: step() was called.
  [[nodiscard]] std::vector<ttrace::OptimizerEntry> entries() const;

 private:
  [[nodiscard]] bool has_copy(std::size_t i) const;

  std::vector<ModelParameter> parameters_;
  std::vector<at::Tensor> gradients_;
  std::vector<at::Tensor> masters_;
  Bugs bugs_;
  std::unique_ptr<torch::optim::AdamW> adamw_;
};

}  // namespace megatron_mini
