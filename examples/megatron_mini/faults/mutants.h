// Errors of a chosen size, planted in one operator of one layer or in the optimizer, to measure how
// small an error is found.
//
// They are not bugs that somebody met: those are in bugs.yaml. Without one no bit of a run differs.
// What a mutant scales is scaled before it is rounded, so that a size below a rounding still moves
// the mean.
//
// Thread-safety: values.
#pragma once

#include "../config.h"
#include "../parallel.h"
#include "../parts.h"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

namespace megatron_mini::faults {

enum class Mutation : std::uint8_t {
  kNone,
  kOperatorScale,            // output of mlp.linear_fc2, times 1 + size
  kOperatorScaleProj,        // the same of self_attention.linear_proj
  kPartialSum,               // share of the last tp rank's addend to mlp.linear_fc2 that is missing
  kSoftmaxScale,             // scale of the attention's scores, times 1 + size
  kRow,                      // one row of mlp.linear_fc2's output, times 1 + size
  kWeightGrad,               // gradient of mlp.linear_fc2.weight, times 1 + size
  kCommonGradFactor,         // gradient of the loss, and so all gradients, times 1 + size
  kNormGradShard,            // share missing of the last tp rank's addend to the gradient of
                             // input_layernorm.weight
  kOptimizerLr,              // learning rate, times 1 + size
  kOptimizerWeightDecay,     // weight decay, times 1 + size
  kOptimizerBeta1,           // times 1 - size
  kOptimizerBeta2,           // times 1 - size
  kOptimizerBiasCorrection,  // of step t for t (1 + size)
};

// What is wrong with the product of one linear.
struct ProductMutant {
  double output = 1.0;      // what this rank's addends, and above 1 the bias, are multiplied by
  double middle_row = 1.0;  // and, besides, both in row s / 2 of the first sample
  double weight_gradient = 1.0;  // what the weight's gradient is multiplied by

  [[nodiscard]] bool acts() const {
    return output != 1.0 || middle_row != 1.0 || weight_gradient != 1.0;
  }
  // input [s, b, in], weight [out, in] -> [s, b, out]
  [[nodiscard]] at::Tensor product(const at::Tensor& input, const at::Tensor& weight) const;
  // The sum of addends and the bias [h]. What makes an output too large does so with its bias; what
  // leaves a share of an addend out does not.
  [[nodiscard]] at::Tensor with_bias(const at::Tensor& sum,
                                     const at::Tensor& bias,
                                     const Parallel& parallel) const;
};

class Mutant {
 public:
  Mutant() = default;
  Mutant(Mutation mutation, double size, std::int64_t layer)
      : mutation_(mutation), size_(size), layer_(layer) {}
  // Throws UsageError for an unknown name, and for a size that is negative, or
  // above 1 where it is a share.
  [[nodiscard]] static Mutant named(const std::string& name, double size, std::int64_t layer);
  // "operator_scale", ...
  [[nodiscard]] static std::vector<std::string> names();

  // Throws UsageError where it cannot act: no such layer, one rank, experts.
  void check_can_act(const ModelConfig& model, int tp, bool sequence_parallel) const;

  // Replaces the parts that it is wrong in.
  void plant(Parts& parts) const;

  // `path`: of the linear.
  [[nodiscard]] ProductMutant of_linear(const std::string& path, const Group& tp) const;
  // What step `step`, from 1, updates by.
  [[nodiscard]] OptimizerConfig optimizer(const OptimizerConfig& config, std::int64_t step) const;

 private:
  // The path of `part` in its layer.
  [[nodiscard]] std::string path_of(const std::string& part) const;

  Mutation mutation_ = Mutation::kNone;
  double size_ = 0.0;
  std::int64_t layer_ = 0;
};

}  // namespace megatron_mini::faults
