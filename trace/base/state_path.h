// Paths of what is kept of a parameter under a name of its own: PARAMETER.NAME, as in
// "0.weight.momentum_buffer".
//
// Thread-safety: free functions without shared state.
#pragma once

#include "trace/base/kind.h"

#include <ttrace/tensor_id.h>

#include <string>

namespace ttrace {

// The path of the parameter that the tensor belongs to; of other tensors their own.
[[nodiscard]] inline std::string parameter_of(const TensorId& id) {
  return is_named_state(id.kind) ? id.path.substr(0, id.path.rfind('.')) : id.path;
}

// "momentum_buffer"; empty for other tensors.
[[nodiscard]] inline std::string state_name_of(const TensorId& id) {
  return is_named_state(id.kind) ? id.path.substr(id.path.rfind('.') + 1) : std::string();
}

// The name of the state that is the learning rate of a step, and of the next one.
inline constexpr const char* kLearningRate = "lr";
inline constexpr const char* kNextLearningRate = "lr_next";

}  // namespace ttrace
