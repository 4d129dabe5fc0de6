// Dropout whose masks follow from integers alone, so that every layout draws the same ones, and a
// recomputed forward those of the first.
//
// Element i of a mask, i its row-major position in the logical tensor, is kept where
//   splitmix64(stream + i G) >> 32  >=  floor(p 2^32),  G = 2^64 / golden ratio,
//   stream = splitmix64(XXH3-64(path) ^ splitmix64((seed c + step) c + microbatch)),  c = 1000003,
// and what is kept is divided by 1 - p. `path` is the dropout's path in the model.
//
// Sources: Srivastava et al., "Dropout" (2014), section 10 for the division; Steele, Lea and Flood,
// "Fast splittable pseudorandom number generators" (2014), for the generator.
//
// Thread-safety: values and free functions without shared state; modules: one training thread.
#pragma once

#include "blueprint.h"
#include "token_places.h"

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <string>
#include <vector>

namespace megatron_mini {

// One dimension of a logical tensor and the logical indices that a part of it has there.
struct DrawnDimension {
  std::int64_t size = 0;
  at::Tensor indices;  // [local size] i64, on the CPU
};

// [local sizes] bool, on the CPU: the part's elements that are kept. Requires: 0 <= probability
// < 1.
[[nodiscard]] at::Tensor kept_elements(const std::string& path,
                                       double probability,
                                       std::uint64_t draw,
                                       const std::vector<DrawnDimension>& dimensions);

// Zeros what is not kept and divides the rest by 1 - probability.
[[nodiscard]] at::Tensor drop(const at::Tensor& values, const at::Tensor& kept, double probability);

// Dropout of a block's output before it is added to the residual stream. It has no parameters, and
// hands its input on where the probability is 0.
class ResidualDropout : public torch::nn::Module {
 public:
  ResidualDropout(const Blueprint& blueprint, std::string path);
  // [rows, b, h] -> the same
  [[nodiscard]] at::Tensor forward(const at::Tensor& input, const TokenPlaces& places);

 protected:
  // What the mask follows from.
  [[nodiscard]] virtual std::uint64_t draw_of(const TokenPlaces& places) const {
    return places.draw;
  }

 private:
  double probability_;
  std::int64_t sequence_;
  Parallel parallel_;
  std::string path_;
};

}  // namespace megatron_mini
