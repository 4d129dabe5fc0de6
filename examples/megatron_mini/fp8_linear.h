// What a linear does with its operands where it computes in FP8: input and weight are quantised to
// E4M3 before the product, the gradient of the product to E5M2 before both products of backward.
//
// Biases are added to, and get their gradients from, values that are not quantised.
//
// Thread-safety: none; one training thread.
#pragma once

#include "blueprint.h"
#include "fp8_quantiser.h"

#include <ttrace/scope.h>

#include <torch/nn/module.h>

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace megatron_mini {

// Whether tensor-parallel ranks hold other features of a linear's outputs, or of its inputs.
enum class LinearSplit : std::uint8_t { kOutputs, kInputs };

// Whether layer `number` is none of the first or last layers that stay BF16.
[[nodiscard]] bool computes_in_fp8(const Blueprint& blueprint, std::int64_t number);
// The same for the layer of the linear with this path.
[[nodiscard]] bool computes_in_fp8(const Blueprint& blueprint, const std::string& path);
// N of "decoder.layers.N.mlp.linear_fc1".
[[nodiscard]] std::int64_t layer_number(std::string_view path);

class Fp8Linear {
 public:
  enum Slot : int { kInput, kWeight, kGradient };
  using Operands = std::array<Fp8Operand, 3>;  // by slot

  // How a linear's operands are quantised.
  [[nodiscard]] static Operands operands_of(LinearSplit split, const Parallel& parallel);

  Fp8Linear(LinearSplit split, const Blueprint& blueprint)
      : Fp8Linear(operands_of(split, blueprint.parallel), blueprint) {}
  Fp8Linear(const Operands& operands, const Blueprint& blueprint);
  virtual ~Fp8Linear() = default;
  Fp8Linear(const Fp8Linear&) = delete;  // hooks of the graph point to it
  Fp8Linear& operator=(const Fp8Linear&) = delete;

  // Quantises what this rank holds of the input; backward the gradient passes unchanged.
  [[nodiscard]] virtual at::Tensor input(const at::Tensor& tensor, ttrace::Scope& scope);
  // The same for the weight.
  [[nodiscard]] virtual at::Tensor weight(const at::Tensor& tensor, ttrace::Scope& scope);
  // Hands the product of both on; its gradient will be quantised. `owner` is the linear.
  [[nodiscard]] at::Tensor product(const at::Tensor& tensor, const torch::nn::Module& owner);

  // Records what the product takes for its input and returns it. `mine` is what this rank gave to
  // `whole`, the same where no rows are gathered.
  [[nodiscard]] at::Tensor consumed(const at::Tensor& whole,
                                    const at::Tensor& mine,
                                    ttrace::Scope& scope) const;

  // Those of input, weight and gradient.
  [[nodiscard]] std::span<const std::shared_ptr<Fp8Quantiser>> quantisers() const {
    return quantisers_;
  }

 protected:
  // Quantises and records history and scale.
  [[nodiscard]] virtual Fp8Values quantise(Slot slot,
                                           const at::Tensor& tensor,
                                           ttrace::Scope& scope);
  virtual void record_operand(Slot slot, const at::Tensor& values, ttrace::Scope& scope) const;
  // What the product takes for `whole`.
  [[nodiscard]] virtual at::Tensor gathered(const at::Tensor& whole, const at::Tensor& mine) const;

 private:
  // The same with the values, which go into a product as they are.
  [[nodiscard]] at::Tensor quantise_whole(Slot slot,
                                          const at::Tensor& tensor,
                                          ttrace::Scope& scope);

  std::array<std::shared_ptr<Fp8Quantiser>, 3> quantisers_;  // by slot
};

// Throws UsageError where tensor parallelism would cut a block that has one scale.
void check_fp8(const Blueprint& blueprint);

}  // namespace megatron_mini
