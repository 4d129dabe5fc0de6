#include "analysis/align/module_path.h"

#include <algorithm>
#include <charconv>
#include <string_view>
#include <system_error>

namespace ttrace {

std::optional<LayerPath> layer_path(const std::string& path) {
  constexpr std::string_view kLayers = "layers.";
  const std::size_t found = path.find(kLayers);
  if (found == std::string::npos) {
    return std::nullopt;
  }
  const std::size_t begin = found + kLayers.size();
  const std::size_t end = std::min(path.find('.', begin), path.size());
  LayerPath result{path.substr(0, begin), 0, path.substr(end)};
  const char* last = path.data() + end;
  const auto parsed = std::from_chars(path.data() + begin, last, result.layer);
  return parsed.ec == std::errc() && parsed.ptr == last ? std::optional(result) : std::nullopt;
}

bool is_same_in_other_layer(const std::string& left, const std::string& right) {
  const auto one = layer_path(left);
  const auto two = layer_path(right);
  return one && two && one->layer != two->layer && one->before == two->before &&
         one->after == two->after;
}

std::string module_of(const std::string& parameter) {
  return parameter.substr(0, parameter.rfind('.'));
}

TensorId weight_id(std::int64_t step, const std::string& module) {
  return {.step = step, .kind = Kind::kParam, .path = module + ".weight"};
}

TensorId bias_id(std::int64_t step, const std::string& module) {
  return {.step = step, .kind = Kind::kParam, .path = module + ".bias"};
}

}  // namespace ttrace
