// Gradients of a step: collected over micro-batches in flat buckets of high precision, then reduced
// between ranks: every rank gets the sums, or with Parallel::zero1 its part of them.
//
// Thread-safety: none; one training thread.
#pragma once

#include "bugs.h"
#include "flat_buckets.h"
#include "gpt_model.h"
#include "parallel.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace megatron_mini {

class MainGradients {
 public:
  // Of the parameters that train, f64 for f64 parameters, else f32. Allocates, communicates
  // nothing.
  MainGradients(std::vector<ModelParameter> parameters, const Parallel& parallel, const Bugs& bugs);

  // At the beginning of an iteration, from 0.
  void zero(std::int64_t iteration);
  // Adds the gradients that one micro-batch (by global number) gave a chunk's parameters and takes
  // them away.
  void accumulate(std::int64_t microbatch, int chunk = 0);
  // The first part of reduce(), for those who want it before all gradients are there: later ones
  // are divided alike and stay this rank's own.
  void sum_over_data_ranks(Loss loss);
  // Sums over dp and cp, those of experts over edp, then over tp what sequence parallelism left as
  // addends, over etp the biases that its first rank adds, then over first and last stage the tied
  // weight's. With Loss::kMean gradients are first divided by dp * cp,
  // which the losses were multiplied by. With zero1 what lies outside this rank's parts is worth
  // nothing then. All ranks.
  void reduce(Loss loss);
  void divide(double divisor);
  // Frobenius norm over the whole model, every logical element once; the same on all ranks. All
  // ranks.
  [[nodiscard]] double norm() const;
  // A planted bug: sums over dp and cp at once, what is added later stays undivided on this rank.
  void reduce_early(Loss loss);
  // Scales such that a gradient of this norm is at most `limit` long.
  void clip(double norm, double limit);

  [[nodiscard]] const std::vector<ModelParameter>& parameters() const { return parameters_; }
  [[nodiscard]] const std::vector<FlatBucket>& buckets() const { return layout_; }
  // What this rank has of the reduced gradients, and those themselves: views into the buckets.
  [[nodiscard]] const std::vector<OwnedPart>& parts() const { return parts_; }
  [[nodiscard]] std::vector<at::Tensor> reduced() const;

 private:
  void sum_buckets();
  // Planted bugs: gradients that are summed over cp alone.
  [[nodiscard]] bool is_overlooked(std::size_t i) const;
  void sum_sequence_parallel_gradients();
  void sum_replicated_expert_gradients();
  // What the gradients of experts are divided by where those of all else are divided by `dense`.
  [[nodiscard]] double divisor_of_experts(double dense) const;
  // Squared norm over the whole model, of experts or of all else; the same on all ranks.
  [[nodiscard]] double squared_norm(bool of_experts) const;
  // Whether experts are clipped by a norm of their own.
  [[nodiscard]] bool clips_experts_apart() const;
  [[nodiscard]] bool is_of_experts(const FlatBucket& bucket) const;
  void sum_tied_gradients();

  std::int64_t frozen_addends_;             // elements of frozen parameters that tp would sum
  bool ties_misaligned_;                    // a planted bug
  std::vector<ModelParameter> parameters_;  // that train
  Parallel parallel_;
  Bugs bugs_;
  std::vector<FlatBucket> layout_;
  std::vector<OwnedPart> parts_;
  std::vector<at::Tensor> buckets_;  // flat
  std::vector<at::Tensor> views_;    // into the buckets, one per parameter, of its shape
  std::int64_t iteration_ = 0;       // of the latest zero()
  std::optional<double> summed_;     // over dp and cp since zero(), having divided by this
};

}  // namespace megatron_mini
