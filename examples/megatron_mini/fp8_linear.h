// What a linear does with its operands where it computes in FP8: input and weight are quantised to
// E4M3 before the product, the gradient of the product to E5M2 before both products of backward.
//
// Biases are added to, and get their gradients from, values that are not quantised.
//
// Thread-safety: none; one training thread.
#pragma once

#include "bugs.h"
#include "fp8_quantiser.h"
#include "parallel.h"

#include <ttrace/scope.h>

#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace megatron_mini {

struct Blueprint;

// Whether tensor-parallel ranks hold other features of a linear's outputs, or of its inputs.
enum class LinearSplit : std::uint8_t { kOutputs, kInputs };

class Fp8Linear {
 public:
  // Null for a linear that stays as it is: in another precision, or where `path` is in one of the
  // first or last layers that stay BF16.
  [[nodiscard]] static std::unique_ptr<Fp8Linear> make(const Blueprint& blueprint,
                                                       const std::string& path,
                                                       LinearSplit split);

  // Quantises what this rank holds of the input; backward the gradient passes unchanged.
  [[nodiscard]] at::Tensor input(const at::Tensor& tensor, ttrace::Scope& scope);
  // input [s, b, in], already quantised, weight [out, in] -> [s, b, out]. `owner` is the linear.
  [[nodiscard]] at::Tensor product(const at::Tensor& input,
                                   const at::Tensor& weight,
                                   ttrace::Scope& scope,
                                   const torch::nn::Module& owner);

  // Of input, weight and gradient.
  [[nodiscard]] std::span<Fp8Quantiser> quantisers() { return quantisers_; }

 private:
  Fp8Linear(const Blueprint& blueprint, LinearSplit split);

  std::vector<Fp8Quantiser> quantisers_;
};

// Ends a step: shares the amaxes that all linears of the model collected and rolls their
// histories. All ranks with the same part of the model call.
void roll_fp8_histories(const torch::nn::Module& model, const Parallel& parallel);

// Throws ttrace::UsageError where tensor parallelism would cut a block that has one scale.
void check_fp8(const Blueprint& blueprint);

}  // namespace megatron_mini
