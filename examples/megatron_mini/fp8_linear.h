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
  // The same for the weight.
  [[nodiscard]] at::Tensor weight(const at::Tensor& tensor, ttrace::Scope& scope);
  // Hands the product of both on; its gradient will be quantised. `owner` is the linear.
  [[nodiscard]] at::Tensor product(const at::Tensor& tensor, const torch::nn::Module& owner);

  // What the product takes for its input, `whole` if nobody planted a bug, and records it. `mine`
  // is what this rank gave to it, the same where no rows are gathered.
  [[nodiscard]] at::Tensor consumed(const at::Tensor& whole,
                                    const at::Tensor& mine,
                                    ttrace::Scope& scope) const;

  // Of input, weight and gradient.
  [[nodiscard]] std::span<Fp8Quantiser> quantisers() { return quantisers_; }

 private:
  Fp8Linear(const Blueprint& blueprint, const std::string& path, LinearSplit split);
  // Quantises and records history and scale.
  [[nodiscard]] Fp8Values quantise(int slot, const at::Tensor& tensor, ttrace::Scope& scope);
  // The same with the values, which go into a product as they are.
  [[nodiscard]] at::Tensor quantise_whole(int slot, const at::Tensor& tensor, ttrace::Scope& scope);
  void record_operand(int slot, const at::Tensor& values, ttrace::Scope& scope) const;
  // Not in a recomputed forward of a planted bug.
  [[nodiscard]] bool is_active() const;
  [[nodiscard]] at::Tensor gathered(const at::Tensor& whole, const at::Tensor& mine) const;

  std::vector<Fp8Quantiser> quantisers_;
  Group rows_;              // with sequence parallelism: ranks with other rows of the input
  at::Tensor input_scale_;  // of the latest forward
  // Planted bugs.
  bool repeats_own_rows_;        // takes its own rows for those of the others
  bool shares_no_amax_;          // of rows that are gathered
  bool recomputes_with_newest_;  // delayed scales
  bool recomputes_in_bf16_;
  bool turns_back_with_newest_;  // delayed scale, of the saved input
};

// Ends a step: shares the amaxes that all linears of the model collected and rolls their
// histories. All ranks with the same part of the model call.
void roll_fp8_histories(const torch::nn::Module& model, const Parallel& parallel, const Bugs& bugs);

// Throws ttrace::UsageError where tensor parallelism would cut a block that has one scale.
void check_fp8(const Blueprint& blueprint);

}  // namespace megatron_mini
