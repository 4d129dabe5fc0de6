// Gradients of a step: collected over micro-batches in flat buckets of high precision, then reduced
// between ranks.
//
// Thread-safety: none; one training thread.
#pragma once

#include "bugs.h"
#include "gpt_model.h"
#include "parallel.h"

#include <cstdint>
#include <functional>
#include <vector>

namespace megatron_mini {

class MainGradients {
 public:
  // f64 for f64 parameters, else f32. Allocates, communicates nothing.
  MainGradients(std::vector<ModelParameter> parameters, const Parallel& parallel, const Bugs& bugs);

  void zero();
  // Adds the parameters' gradients of one micro-batch (by global number) and takes them away.
  void accumulate(std::int64_t microbatch);
  // Sums over dp and cp, those of experts over edp, then over tp what sequence parallelism left as
  // addends, and over etp the biases that its first rank adds. With Loss::kMean gradients are first
  // divided by dp * cp, which the losses were multiplied by. All ranks.
  void reduce(Loss loss);
  void divide(double divisor);
  // Frobenius norm over the whole model, every logical element once; the same on all ranks. All
  // ranks.
  [[nodiscard]] double norm() const;
  // Scales such that a gradient of this norm is at most `limit` long.
  void clip(double norm, double limit);

  [[nodiscard]] const std::vector<ModelParameter>& parameters() const { return parameters_; }
  // Views into the buckets, one per parameter, of its shape.
  [[nodiscard]] const std::vector<at::Tensor>& views() const { return views_; }

 private:
  struct Bucket {
    at::Tensor values;  // flat
    bool of_experts = false;
  };

  // Sums the gradients of the parameters whose role this is true of.
  void sum_over(const Group& group, const std::function<bool(ParameterRole)>& concerns);
  // What the gradients of these parameters are divided by before they are summed.
  [[nodiscard]] double divisor(bool of_experts) const;
  // Squared norm over the whole model, of experts or of all else; the same on all ranks.
  [[nodiscard]] double squared_norm(bool of_experts) const;
  // Whether experts are clipped by a norm of their own.
  [[nodiscard]] bool clips_experts_apart() const;

  std::vector<ModelParameter> parameters_;
  Parallel parallel_;
  Bugs bugs_;
  std::vector<Bucket> buckets_;
  std::vector<at::Tensor> views_;
};

}  // namespace megatron_mini
