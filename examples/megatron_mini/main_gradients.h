// Gradients of a step: collected over micro-batches in flat buckets of high precision, then reduced
// between ranks.
//
// Thread-safety: none; one training thread.
#pragma once

#include "bugs.h"
#include "gpt_model.h"
#include "parallel.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace megatron_mini {

class MainGradients {
 public:
  // f64 for f64 parameters, else f32. Allocates, communicates nothing.
  MainGradients(std::vector<ModelParameter> parameters, const Parallel& parallel, const Bugs& bugs);

  void zero();
  // Adds the gradients that one micro-batch (by global number) gave a chunk's parameters and takes
  // them away.
  void accumulate(std::int64_t microbatch, int chunk = 0);
  // The first part of reduce(), for those who want it before all gradients are there: later ones
  // are divided alike and stay this rank's own.
  void sum_over_data_ranks(Loss loss);
  // Sums over dp and cp, then over tp what sequence parallelism left as addends, then over first
  // and last stage the tied weight's. With Loss::kMean gradients are first divided by dp * cp,
  // which the losses were multiplied by. All ranks.
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
  void sum_sequence_parallel_gradients();
  void sum_tied_gradients();

  std::vector<ModelParameter> parameters_;
  Parallel parallel_;
  Bugs bugs_;
  std::vector<at::Tensor> buckets_;  // flat
  std::vector<at::Tensor> views_;
  std::optional<double> summed_;  // over dp and cp since zero(), having divided by this
};

}  // namespace megatron_mini
