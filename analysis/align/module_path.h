// Names of modules and of their parameters.
//
// Thread-safety: free functions without shared state.
#pragma once

#include <ttrace/tensor_id.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ttrace {

// "decoder.layers.2.norm" of "decoder.layers.2.norm.weight"; the path itself where it has one part.
[[nodiscard]] std::string module_of(const std::string& parameter);

// "decoder", "layers", "2" of "decoder.layers.2".
[[nodiscard]] std::vector<std::string> path_parts(std::string_view path);
// Whether the path is that of the module, or of something inside it. Everything is inside the empty
// path, the whole model.
[[nodiscard]] bool lies_in(const std::string& path, const std::string& module);
// The path with a star in the place of every number: "decoder.layers.*".
[[nodiscard]] std::string pattern_of(std::string_view path);

// The parameters `module`.weight and `module`.bias at the beginning of a step.
[[nodiscard]] TensorId weight_id(std::int64_t step, const std::string& module);
[[nodiscard]] TensorId bias_id(std::int64_t step, const std::string& module);

}  // namespace ttrace
