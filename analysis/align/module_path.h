// Names of modules and of their parameters, and the records that stand at one place.
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
// The paths of the modules around `path`, the innermost first.
[[nodiscard]] std::vector<std::string> outer_paths(std::string path);
// The path with a star in the place of every number: "decoder.layers.*".
[[nodiscard]] std::string pattern_of(std::string_view path);

// The parameters `module`.weight and `module`.bias at the beginning of a step.
[[nodiscard]] TensorId weight_id(std::int64_t step, const std::string& module);
[[nodiscard]] TensorId bias_id(std::int64_t step, const std::string& module);

// The record of another kind at the same place.
[[nodiscard]] TensorId as_kind(TensorId id, Kind kind);
// Whether it is what a module took or returned in a forward that did not run again in backward.
[[nodiscard]] bool is_first_forward(const TensorId& id);
[[nodiscard]] bool same_microbatch(const TensorId& left, const TensorId& right);

}  // namespace ttrace
