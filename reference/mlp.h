// The feed-forward half of a layer.
//
// Sources: Hendrycks and Gimpel, "Gaussian error linear units" (2016), section 2 (the exact form
// with erf, not its tanh approximation); Shazeer, "GLU variants improve transformer" (2020),
// equation 5 for SwiGLU, there without biases.
#pragma once

#include "config.h"
#include "layers.h"

#include <ttrace/scope.h>

#include <cstdint>
#include <memory>

namespace ttrace::reference {

// gelu: x Phi(x), Phi the normal distribution function; [S, B, F] -> [S, B, F].
// swiglu: silu(gate) up with silu(x) = x / (1 + e^-x); [S, B, 2F] -> [S, B, F], all gate features
// first, then all up features.
[[nodiscard]] at::Tensor activate(const at::Tensor& x, Activation activation);

class Mlp : public torch::nn::Module {
 public:
  Mlp(const ModelConfig& model, std::int64_t ffn, const at::TensorOptions& options);
  at::Tensor forward(const at::Tensor& x) const;  // [S, B, H] -> [S, B, H]
  // For some of the tokens, whose numbers `places` has: [n, H] -> [n, H].
  at::Tensor forward(const at::Tensor& x, const Rows& places) const;

  std::shared_ptr<Linear> linear_fc1;  // H -> F, or 2F for swiglu
  std::shared_ptr<Linear> linear_fc2;  // F -> H

 private:
  Activation activation_;
};

}  // namespace ttrace::reference
