// What a zoom pass looks into: modules, in one micro-batch of one step. TTRACE_ZOOM holds its text.
//
// Thread-safety: values and free functions without shared state.
#pragma once

#include <ttrace/tensor_id.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ttrace {

// Stands for code that runs in no module, such as a loss function, or directly in the whole model.
inline constexpr std::string_view kOutsideOfModules = "outside";
// The path that the Python package gives to the whole model.
inline constexpr std::string_view kWholeModel = "model";

struct ZoomTarget {
  std::int64_t step = 0;
  std::int64_t microbatch = kNoMicrobatch;  // kNoMicrobatch: all of them
  std::vector<std::string> modules;         // paths, or kOutsideOfModules

  bool operator==(const ZoomTarget&) const = default;
};

// "s0/m0/layers.0.attention,layers.1.attention"
[[nodiscard]] std::string to_string(const ZoomTarget& target);
// Inverse of to_string(). Throws UsageError that quotes the text.
[[nodiscard]] ZoomTarget parse_zoom_target(std::string_view text);

// The path of an operator's records: "layers.0.attention" and "aten::add_" give
// "layers.0.attention.add". An operator in place computes what the other one does.
[[nodiscard]] std::string operator_path(std::string_view module, std::string_view name);

}  // namespace ttrace
