#include "analysis/diagnosis/signatures.h"
#include "analysis/wording.h"

#include <algorithm>
#include <charconv>
#include <string>
#include <system_error>

namespace ttrace {
namespace {

// "decoder.layers.", 2, ".mlp" of "decoder.layers.2.mlp".
struct LayerPath {
  std::string before;
  std::int64_t layer = 0;
  std::string after;
};

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

}  // namespace

std::optional<Diagnosis> find_wrong_layer(const Evidence& evidence) {
  const Sides* sides = evidence.sides();
  const auto path = layer_path(evidence.finding().id.path);
  if (sides == nullptr || !path) {
    return std::nullopt;
  }
  TensorId other = evidence.finding().id;
  std::int64_t missing = 0;
  for (std::int64_t layer = 0; missing < 2; ++layer) {
    other.path = path->before + std::to_string(layer) + path->after;
    const Match* match = evidence.find(other);
    missing += match == nullptr ? 1 : 0;
    const auto value =
        match == nullptr || layer == path->layer ? std::nullopt : evidence.reference(*match);
    const double rest = value ? distance(sides->candidate, *value) : 0.0;
    if (value && rest <= evidence.tolerance(sides->error)) {
      return Diagnosis{Signature::kWrongLayer,
                       "layer " + std::to_string(path->layer) + " holds what layer " +
                           std::to_string(layer) + " has in the reference (difference " +
                           short_number(rest) + ", from its own " + short_number(sides->error) +
                           "): layers are given to stages in another order"};
    }
  }
  return std::nullopt;
}

}  // namespace ttrace
