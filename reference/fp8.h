// FP8 by emulation: each operand of a product is rounded to eight bits and used as what its codes
// stand for.
//
//   code = round(x / scale), at most the largest number of the format;  value = code scale
//
// Inputs and weights are E4M3 (largest number 448), gradients of outputs E5M2 (57344). A value so
// obtained serves in all products: y = X W^T, dX = dY W, dW = dY^T X with X, W, dY quantised. (GPUs
// keep a second copy, cut into blocks along tokens, for the products that sum over tokens.)
//
//   recipe     scale = amax / largest number, with amax the largest magnitude of
//   current    the tensor
//   delayed    the last steps, over all micro-batches of each; a fresh history has none. Then an
//              input or a weight has scale 1, a gradient, whose size nobody knows, its own amax
//   blockwise  128 features of a token, or 128 x 128 elements of a weight; rounded up to a power
//              of two
//   mxfp8      32 features of a token or of a weight's row; rounded up to a power of two
//
// An amax of 0 gives scale 1, in a block the smallest power of two. NaN and Inf stay NaN and Inf
// (NaN in E4M3, which has no Inf) and do not count in an amax.
//
// Sources: Micikevicius et al., "FP8 formats for deep learning" (2022), formats and one scale per
// tensor; TransformerEngine's recipes, for histories and 1 x 128 and 128 x 128 blocks with
// power-of-two scales; OCP "Microscaling formats (MX)" 1.0 (2023), section 5, for 1 x 32 blocks and
// E8M0, there with the exponent rounded down; up, so that nothing saturates, is
// TransformerEngine's.
//
// Thread-safety: use from the training thread.
#pragma once

#include "config.h"

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace ttrace::reference {

enum class Fp8Format : std::uint8_t { kE4M3, kE5M2 };

struct Quantised {
  at::Tensor values;  // like what was quantised, in its type
  at::Tensor scale;   // [] f32; blockwise: [..., blocks] (weights: [blocks, blocks]) E8M0
};

// One of the three operands of a linear.
class Fp8Operand {
 public:
  // `device`: of what is quantised.
  Fp8Operand(Fp8Format format,
             bool is_weight,
             const Fp8Config& config,
             c10::Device device = at::kCPU);

  // x [..., features], or a weight [outputs, inputs]; f32, f64 or bf16.
  Quantised quantise(const at::Tensor& x);
  // delayed: the step's amax enters the history.
  void end_step();
  // [history] f32, the last step's amax first; undefined unless delayed.
  [[nodiscard]] const at::Tensor& amax_history() const { return history_; }

 private:
  Quantised quantise_whole(const at::Tensor& x);
  Quantised quantise_blocks(const at::Tensor& x) const;
  [[nodiscard]] at::Tensor delayed_amax(const at::Tensor& now);

  Fp8Format format_;
  bool is_weight_;
  Fp8Config config_;
  at::Tensor history_;
  at::Tensor step_amax_;  // [] f32, of this step so far; delayed only
};

// The operands of one linear.
struct Fp8Operands {
  Fp8Operands(const Fp8Config& config, c10::Device device);
  void end_step();

  Fp8Operand input;
  Fp8Operand weight;
  Fp8Operand gradient;  // of the output
};

// `values` forward; backward the gradient goes on to x unchanged.
[[nodiscard]] at::Tensor in_place_of(const at::Tensor& x, const at::Tensor& values);

}  // namespace ttrace::reference
