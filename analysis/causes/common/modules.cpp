#include "analysis/causes/common/modules.h"

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

TensorId weight_id(std::int64_t step, const std::string& module) {
  return {.step = step, .kind = Kind::kParam, .path = module + ".weight"};
}

const Match* record_of(const Evidence& evidence, Kind kind, const std::string& module) {
  const TensorId& id = evidence.finding().id;
  return evidence.find(
      {.step = id.step, .microbatch = id.microbatch, .kind = kind, .path = module});
}

std::optional<Values> candidate_of(const Evidence& evidence, Kind kind, const std::string& module) {
  const Match* match = record_of(evidence, kind, module);
  return match == nullptr ? std::nullopt : evidence.candidate(*match);
}

std::vector<const Match*> forward_before(const Evidence& evidence, const TensorId& output) {
  constexpr std::size_t kTried = 8;
  std::vector<const Match*> list;
  for (const Match& match : evidence.matches()) {
    if (match.id == output) {
      break;
    }
    if ((match.id.kind == Kind::kOutput || match.id.kind == Kind::kInput) &&
        match.id.step == output.step && match.id.microbatch == output.microbatch &&
        match.id.recompute == output.recompute && !match.candidate.empty()) {
      list.push_back(&match);
    }
  }
  std::reverse(list.begin(), list.end());
  list.resize(std::min(list.size(), kTried));
  return list;
}

}  // namespace ttrace
