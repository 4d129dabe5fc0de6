#include "analysis/causes/common/modules.h"

#include <algorithm>
#include <cstddef>

namespace ttrace {

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
