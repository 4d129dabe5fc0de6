// AdamW over high-precision copies of the parameters.
//
// BF16 parameters have f32 masters, and a step ends by rounding them; f32 and f64 parameters are
// their own masters. Weight decay applies to parameters of two dimensions and more. With
// Parallel::zero1 a rank has masters and moments of its parts and updates those; the others come to
// it through ParameterGather.
//
// Thread-safety: none; one training thread.
#pragma once

#include "config.h"
#include "flat_buckets.h"
#include "model_parameter.h"

#include <ttrace/session.h>

#include <torch/optim/adamw.h>

#include <memory>
#include <string>
#include <vector>

namespace megatron_mini {

class MixedPrecisionOptimizer {
 public:
  // Copies masters of `parts` from the parameters' present values. `gradients`, one per part, are
  // read by every step.
  MixedPrecisionOptimizer(std::vector<ModelParameter> parameters,
                          const std::vector<OwnedPart>& parts,
                          const std::vector<at::Tensor>& gradients,
                          const OptimizerConfig& config);
  virtual ~MixedPrecisionOptimizer() = default;

  // What the next steps update by.
  void use(const OptimizerConfig& config);
  virtual void step();

  // Masters (where they are copies) and moments after a step, and the updated parameters: all of
  // them, or this rank's parts where the others are still to be gathered. Requires: step() was
  // called.
  [[nodiscard]] std::vector<ttrace::OptimizerEntry> entries(bool gathered) const;
  // This rank's parts of the parameters.
  [[nodiscard]] const std::vector<at::Tensor>& values() const { return values_; }

 protected:
  // Rounds the updated master of a part to its parameter.
  virtual void write_back(std::size_t part);
  [[nodiscard]] const std::string& path_of(std::size_t part) const {
    return parameters_[parts_[part].parameter].path;
  }

 private:
  [[nodiscard]] bool has_copy(std::size_t i) const;
  void add_parameters_of_others(std::vector<ttrace::OptimizerEntry>& entries) const;

  std::vector<ModelParameter> parameters_;
  std::vector<OwnedPart> parts_;  // what follows has one entry per part
  std::vector<at::Tensor> gradients_;
  std::vector<at::Tensor> values_;  // share the parameters' memory
  std::vector<at::Tensor> masters_;
  std::unique_ptr<torch::optim::AdamW> adamw_;
};

}  // namespace megatron_mini
