// The three leaf modules: modules that own parameters and call one operation.
//
// Embedding and LayerNorm compute in high precision (f32 for bf16): their weights' gradients are
// sums over all tokens, and the CPU kernels add those up in the type of the weight. In bf16 that
// alone is an error of 2 % at 256 tokens; a reference must not have it.
//
// Parameters are created uninitialised: ttrace::fill_parameters or a stored start fills them.
#pragma once

#include "fp8.h"

#include <torch/nn/module.h>

#include <cstdint>
#include <memory>

namespace ttrace::reference {

// Row `token` of a table.
class Embedding : public torch::nn::Module {
 public:
  Embedding(std::int64_t vocabulary, std::int64_t hidden, const at::TensorOptions& options);
  at::Tensor forward(const at::Tensor& tokens) const;  // [S, B] i64 -> [S, B, H]

  at::Tensor weight;  // [V, H]
};

// y = x W^T + b.
class Linear : public torch::nn::Module {
 public:
  Linear(std::int64_t inputs, std::int64_t outputs, const at::TensorOptions& options);
  at::Tensor forward(const at::Tensor& x) const;  // [S, B, inputs] -> [S, B, outputs]

  // From now on the operands of all three products are quantised (fp8.h).
  void use_fp8(const Fp8Config& config);
  // Between steps.
  void end_step();

  at::Tensor weight;  // [outputs, inputs]
  at::Tensor bias;    // [outputs]

 private:
  at::Tensor forward_fp8(const at::Tensor& x) const;

  std::unique_ptr<Fp8Operands> fp8_;  // null: operands are used as they are
};

// y = (x - mean) / sqrt(variance + epsilon) * w + b, mean and biased variance over H.
// Source: Ba, Kiros and Hinton, "Layer normalization" (2016), equations 3 and 4.
class LayerNorm : public torch::nn::Module {
 public:
  LayerNorm(std::int64_t hidden, double epsilon, const at::TensorOptions& options);
  at::Tensor forward(const at::Tensor& x) const;  // [S, B, H] -> [S, B, H]

  at::Tensor weight;  // [H]
  at::Tensor bias;    // [H]

 private:
  double epsilon_;
};

}  // namespace ttrace::reference
