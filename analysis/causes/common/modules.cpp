#include "analysis/causes/common/modules.h"

#include <algorithm>
#include <cstddef>

namespace ttrace {
namespace {

constexpr std::size_t kMostRecords = 8;

bool is_of_same_forward(const Match& match, const TensorId& output) {
  return (match.id.kind == Kind::kOutput || match.id.kind == Kind::kInput) &&
         same_microbatch(match.id, output) && match.id.recompute == output.recompute &&
         !match.candidate.empty();
}

// What the module itself recorded or is known to have taken.
std::vector<const Match*> known_inputs(const Evidence& evidence, const TensorId& output) {
  std::vector<const Match*> list;
  TensorId input = as_kind(output, Kind::kInput);
  for (input.slot = 0;; ++input.slot) {
    const Match* own = evidence.find(input);
    if (const TensorId* from = evidence.producer_of(input); own == nullptr && from != nullptr) {
      own = evidence.find(*from);
    }
    if (own == nullptr || own->candidate.empty()) {
      return list;
    }
    list.push_back(own);
  }
}

}  // namespace

const Match* record_of(const Evidence& evidence, Kind kind, const std::string& module) {
  const TensorId& id = evidence.finding().id;
  return evidence.find(
      {.step = id.step, .microbatch = id.microbatch, .kind = kind, .path = module});
}

std::optional<Values> candidate_of(const Evidence& evidence, Kind kind, const std::string& module) {
  return evidence.candidate(record_of(evidence, kind, module));
}

std::optional<Values> bias_of(const Evidence& evidence, const Values& output, WhichRun run) {
  const TensorId& id = evidence.finding().id;
  auto bias =
      id.kind == Kind::kOutput ? evidence.value(bias_id(id.step, id.path), run) : std::nullopt;
  const bool fits = bias && !output.shape.empty() && std::ssize(bias->data) == output.shape.back();
  return fits ? std::move(bias) : std::nullopt;
}

std::vector<const Match*> records_before(const Evidence& evidence,
                                         const TensorId& id,
                                         const std::function<bool(const Match&)>& is_wanted) {
  const std::span<const Match> matches = evidence.matches();
  std::vector<const Match*> list;
  auto at = std::ranges::find(matches, id, &Match::id);
  while (at != matches.begin() && list.size() < kMostRecords) {
    --at;
    if (is_wanted(*at)) {
      list.push_back(&*at);
    }
  }
  return list;
}

std::vector<const Match*> inputs_of(const Evidence& evidence, const TensorId& output) {
  std::vector<const Match*> list = known_inputs(evidence, output);
  return list.empty()
             ? records_before(evidence,
                              output,
                              [&](const Match& match) { return is_of_same_forward(match, output); })
             : list;
}

std::vector<const Match*> outputs_after(const Evidence& evidence, const TensorId& id) {
  const TensorId output = as_kind(id, Kind::kOutput);
  const std::span<const Match> matches = evidence.matches();
  std::vector<const Match*> list;
  for (auto at = std::ranges::find(matches, output, &Match::id);
       at != matches.end() && list.size() < kMostRecords;
       ++at) {
    if (at->id != output && at->id.kind == Kind::kOutput && is_of_same_forward(*at, output)) {
      list.push_back(&*at);
    }
  }
  return list;
}

}  // namespace ttrace
