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

namespace {

constexpr std::size_t kTried = 8;

bool is_forward_beside(const Match& match, const TensorId& output) {
  return (match.id.kind == Kind::kOutput || match.id.kind == Kind::kInput) &&
         match.id.step == output.step && match.id.microbatch == output.microbatch &&
         match.id.recompute == output.recompute && !match.candidate.empty();
}

// What the module itself recorded or is known to have taken.
std::vector<const Match*> known_inputs(const Evidence& evidence, const TensorId& output) {
  std::vector<const Match*> list;
  TensorId input = output;
  input.kind = Kind::kInput;
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

std::vector<const Match*> inputs_of(const Evidence& evidence, const TensorId& output) {
  std::vector<const Match*> before;
  for (const Match& match : evidence.matches()) {
    if (match.id == output) {
      break;
    }
    if (is_forward_beside(match, output)) {
      before.push_back(&match);
    }
  }
  std::vector<const Match*> list = known_inputs(evidence, output);
  for (auto match = before.rbegin(); match != before.rend() && list.size() < kTried; ++match) {
    if (std::find(list.begin(), list.end(), *match) == list.end()) {
      list.push_back(*match);
    }
  }
  return list;
}

std::vector<const Match*> outputs_after(const Evidence& evidence, const TensorId& output) {
  std::vector<const Match*> list;
  bool after = false;
  for (const Match& match : evidence.matches()) {
    if (after && match.id.kind == Kind::kOutput && is_forward_beside(match, output) &&
        list.size() < kTried) {
      list.push_back(&match);
    }
    after = after || match.id == output;
  }
  return list;
}

std::vector<std::vector<std::string>> subsets_of(const std::vector<std::string>& axes) {
  std::vector<std::vector<std::string>> subsets;
  for (std::size_t subset = 1; subset < std::size_t{1} << axes.size(); ++subset) {
    std::vector<std::string> chosen;
    for (std::size_t i = 0; i < axes.size(); ++i) {
      if ((subset >> i & 1U) != 0) {
        chosen.push_back(axes[i]);
      }
    }
    subsets.push_back(std::move(chosen));
  }
  std::stable_sort(subsets.begin(), subsets.end(), [](const auto& left, const auto& right) {
    return left.size() < right.size();
  });
  return subsets;
}

}  // namespace ttrace
