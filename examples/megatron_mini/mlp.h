// The feed-forward network of a layer, and its activation.
#pragma once

#include "blueprint.h"
#include "layers.h"

#include <cstdint>
#include <memory>
#include <string>

namespace megatron_mini {

// gelu(x) by erf, or silu(gate) * up: [..., gates * f] -> [..., f].
[[nodiscard]] at::Tensor activate(const at::Tensor& input, Activation kind);

class ActivationFunction : public torch::nn::Module {
 public:
  explicit ActivationFunction(Activation kind) : kind_(kind) {}
  // [s, b, gates * f/tp] -> [s, b, f/tp]
  [[nodiscard]] at::Tensor forward(const at::Tensor& input);

 private:
  Activation kind_;
};

class Mlp : public torch::nn::Module {
 public:
  Mlp(const Blueprint& blueprint, std::int64_t ffn, const std::string& path);
  [[nodiscard]] at::Tensor forward(const at::Tensor& input);  // [rows, b, h] -> [rows, b, h]

 private:
  std::shared_ptr<ColumnParallelLinear> linear_fc1_;
  std::shared_ptr<ActivationFunction> activation_;
  std::shared_ptr<RowParallelLinear> linear_fc2_;
};

}  // namespace megatron_mini
