// Names of modules and of their parameters: the layer in a path, the module that owns a parameter.
//
// Thread-safety: free functions without shared state.
#pragma once

#include <ttrace/tensor_id.h>

#include <cstdint>
#include <optional>
#include <string>

namespace ttrace {

// "decoder.layers.", 2, ".mlp" of "decoder.layers.2.mlp".
struct LayerPath {
  std::string before;
  std::int64_t layer = 0;
  std::string after;
};

[[nodiscard]] std::optional<LayerPath> layer_path(const std::string& path);

// The same place in two different layers.
[[nodiscard]] bool is_same_in_other_layer(const std::string& left, const std::string& right);

// "decoder.layers.2.norm" of "decoder.layers.2.norm.weight"; the path itself where it has one part.
[[nodiscard]] std::string module_of(const std::string& parameter);

// The parameters `module`.weight and `module`.bias at the beginning of a step.
[[nodiscard]] TensorId weight_id(std::int64_t step, const std::string& module);
[[nodiscard]] TensorId bias_id(std::int64_t step, const std::string& module);

}  // namespace ttrace
