// Tensors that a program passes under the names of its parameters.
//
// Thread-safety: plain values. An at::Tensor shares its memory with the program; TTrace copies the
// values before the call returns and keeps no reference to gradients and optimizer state.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace ttrace {

// A parameter or its gradient.
struct NamedTensor {
  std::string path;   // canonical: "decoder.layers.0.mlp.linear_fc1.weight"
  at::Tensor tensor;  // this rank's part
  // Only for gradients that a distributed optimizer has cut at an arbitrary element. Then `tensor`
  // is one-dimensional and holds consecutive elements, in row-major order, of this rank's part of
  // the parameter `path`; `flat_first` is the index of the first one. REQUIRES: the parameter is
  // attached. A rank that holds no element of a parameter may leave its entry out.
  std::optional<std::int64_t> flat_first = {};
};

// The state of one parameter after the optimizer step. A program leaves those tensors undefined
// that its optimizer does not have.
struct OptimizerEntry {
  std::string path;
  at::Tensor param;       // what the next forward uses
  at::Tensor master;      // high-precision copy
  at::Tensor exp_avg;     // AdamW first moment
  at::Tensor exp_avg_sq;  // AdamW second moment
  // As in NamedTensor; applies to master, exp_avg and exp_avg_sq. `param` is this rank's whole part
  // of the parameter. It may also be the same flat range, if the optimizer gathers the whole
  // parameter only later (StepOptions::gathered_later).
  std::optional<std::int64_t> flat_first = {};
  // What else the optimizer keeps of the parameter, under names of its own ("momentum_buffer"), and
  // copies of the parameter that the program keeps. A tensor of the parameter's shape, or of its
  // flat range, lies as the parameter does; annotations of "PATH.NAME", or the values, say where
  // others lie. Numbers, such as a learning rate, are tensors without dimensions.
  std::vector<std::pair<std::string, at::Tensor>> states = {};
  std::vector<std::pair<std::string, at::Tensor>> copies = {};
};

}  // namespace ttrace
