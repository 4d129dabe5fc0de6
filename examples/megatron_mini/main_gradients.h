// Gradients of a step: collected over micro-batches in flat buckets of high precision, then reduced
// between ranks: every rank gets the sums, or with Parallel::zero1 its part of them.
//
// Thread-safety: none; one training thread.
#pragma once

#include "config.h"
#include "flat_buckets.h"
#include "model_parameter.h"
#include "parallel.h"

#include <cstdint>
#include <vector>

namespace megatron_mini {

// Those that train.
[[nodiscard]] std::vector<ModelParameter> trained(std::vector<ModelParameter> parameters);

class MainGradients {
 public:
  // Gradients of the parameters that train, f64 for f64 parameters, else f32. Allocates and does
  // not communicate.
  MainGradients(std::vector<ModelParameter> parameters, const Parallel& parallel);
  // In these buckets. Requires: all parameters train.
  MainGradients(std::vector<ModelParameter> parameters,
                const Parallel& parallel,
                std::vector<FlatBucket> layout);
  virtual ~MainGradients() = default;

  // At the beginning of an iteration, from 0.
  void zero(std::int64_t iteration);
  // Adds the gradients that one micro-batch (by global number) gave a chunk's parameters and takes
  // them away.
  void accumulate(std::int64_t microbatch, int chunk = 0);
  // Sums over the ranks with the same part (of dp and cp, of experts edp, in layers of a smaller TP
  // degree also those with other samples), then over tp what sequence parallelism left as addends,
  // over etp the biases that its first rank adds, then over first and last stage the tied weight's.
  // With Loss::kMean gradients are first divided by dp * cp, which the losses were multiplied by.
  // With zero1 what lies outside this rank's parts is worth nothing then. All ranks.
  void reduce(Loss loss);
  // The first part of reduce(): divides, and sums over dp and cp.
  virtual void sum_over_data_ranks(Loss loss);
  void divide(double divisor);
  // Frobenius norm over the whole model, every logical element once; the same on all ranks. All
  // ranks.
  [[nodiscard]] virtual double norm() const;
  // Scales such that a gradient of this norm is at most `limit` long.
  virtual void clip(double norm, double limit);

  [[nodiscard]] const std::vector<ModelParameter>& parameters() const { return parameters_; }
  [[nodiscard]] const std::vector<FlatBucket>& buckets() const { return layout_; }
  // What this rank has of the reduced gradients, and those themselves: views into the buckets.
  [[nodiscard]] const std::vector<OwnedPart>& parts() const { return parts_; }
  [[nodiscard]] std::vector<at::Tensor> reduced() const;

 protected:
  // Empties the buckets for the next step.
  virtual void clear();
  // Adds what micro-batch `microbatch` gave parameter `i`.
  virtual void add(std::size_t i, const at::Tensor& gradient, std::int64_t microbatch);
  // What gradients are divided by before they are summed over dp and cp; `dense`: all but experts'.
  [[nodiscard]] virtual double divisor(Loss loss) const;
  [[nodiscard]] virtual double divisor_of_experts(double dense) const { return dense; }
  // Sums over the ranks with the same parameters: all buckets, or one.
  virtual void sum_buckets();
  virtual void sum_bucket(std::size_t bucket);
  // Whether sequence parallelism leaves an addend of its gradient on each tp rank.
  [[nodiscard]] virtual bool is_addend(const ModelParameter& parameter) const;
  // Addends, one after another in one message.
  [[nodiscard]] virtual at::Tensor joined(const std::vector<at::Tensor>& addends) const;
  // A parameter's gradient from the sum of its addends.
  [[nodiscard]] virtual at::Tensor whole(const ModelParameter& parameter,
                                         const at::Tensor& sum) const;
  // Sums the tied weight's gradient over first and last stage.
  virtual void sum_tied(const at::Tensor& gradient);
  // Whether the norm counts this rank's gradient of the parameter. Where ranks hold equal copies
  // the first one counts.
  [[nodiscard]] virtual bool counts_in_norm(const ModelParameter& parameter) const;
  // A squared norm [1], from this rank's to that of all ranks that hold other parts of the model:
  // within a stage, then over the stages.
  [[nodiscard]] virtual at::Tensor sum_over_stage(const at::Tensor& squared, bool of_experts) const;
  [[nodiscard]] virtual at::Tensor sum_over_stages(const at::Tensor& squared) const;

  // Squared norm over the whole model, of experts or of all else; the same on all ranks.
  [[nodiscard]] double squared_norm(bool of_experts) const;
  // Scales a bucket such that a gradient of this norm is at most `limit` long.
  void shorten(std::size_t bucket, double norm, double limit);
  [[nodiscard]] bool is_of_experts(const FlatBucket& bucket) const;
  [[nodiscard]] const Parallel& parallel() const { return parallel_; }
  [[nodiscard]] std::int64_t iteration() const { return iteration_; }
  // Flat, and the parameters' gradients as views into them.
  [[nodiscard]] const std::vector<at::Tensor>& flat() const { return buckets_; }
  [[nodiscard]] const std::vector<at::Tensor>& gradients() const { return views_; }

 private:
  void sum_sequence_parallel_gradients();
  // Of these parameters, which have one tp group.
  void sum_addends(const std::vector<std::size_t>& members, const Group& tp);
  [[nodiscard]] const Group& tp_of(const ModelParameter& parameter) const;
  void sum_replicated_expert_gradients();
  void sum_tied_gradients();

  std::vector<ModelParameter> parameters_;  // that train
  Parallel parallel_;
  std::vector<FlatBucket> layout_;
  std::vector<OwnedPart> parts_;
  std::vector<at::Tensor> buckets_;  // flat
  std::vector<at::Tensor> views_;    // into the buckets, one per parameter, of its shape
  std::int64_t iteration_ = 0;       // of the latest zero()
};

}  // namespace megatron_mini
