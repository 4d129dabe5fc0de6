// Dropout with masks that follow from integers alone, so that any program can draw the same ones.
//
//   kept[i]  =  splitmix64(stream + i G) >> 32  >=  floor(p 2^32)
//   stream   =  splitmix64(XXH3-64(path) ^ splitmix64((seed c + step) c + microbatch))
//   y[i]     =  kept[i] ? x[i] / (1 - p) : 0
//
// i is the row-major position in a tensor of all samples in their order, `path` the dropout's path
// in the model, G = 2^64 / golden ratio, c = 1000003. Noise passes feed samples in another order: a
// mask belongs to its sample.
//
// Source: Srivastava et al., "Dropout: a simple way to prevent neural networks from overfitting"
// (2014), section 10.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <utility>

namespace ttrace::reference {

// What is random in a micro-batch follows from these.
struct Draw {
  std::uint64_t seed = 0;
  std::int64_t step = 0;
  std::int64_t microbatch = 0;
  at::Tensor
      order;  // [B] i64, on the CPU: sample b of the batch is sample order[b] of the micro-batch
};

class Dropout {
 public:
  // Requires: 0 <= probability < 1.
  Dropout(double probability, std::string path)
      : probability_(probability), path_(std::move(path)) {}

  // Whether there is anything to drop.
  [[nodiscard]] bool active() const { return probability_ > 0.0; }

  // Which elements of a tensor stay: bool, on the CPU. Dimension `samples` of `shape` holds B.
  [[nodiscard]] at::Tensor kept(at::IntArrayRef shape,
                                std::int64_t samples,
                                const Draw& draw) const;
  // Zeros what does not stay, divides the rest by 1 - p.
  [[nodiscard]] at::Tensor apply(const at::Tensor& x, const at::Tensor& kept) const;

 private:
  double probability_;
  std::string path_;
};

}  // namespace ttrace::reference
