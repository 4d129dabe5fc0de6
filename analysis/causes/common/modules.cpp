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
  return evidence.candidate(record_of(evidence, kind, module));
}

std::optional<Values> bias_of(const Evidence& evidence, const Values& output, WhichRun run) {
  const TensorId& id = evidence.finding().id;
  auto bias =
      id.kind == Kind::kOutput ? evidence.value(bias_id(id.step, id.path), run) : std::nullopt;
  const bool fits = bias && !output.shape.empty() && std::ssize(bias->data) == output.shape.back();
  return fits ? std::move(bias) : std::nullopt;
}

std::optional<std::vector<double>> data_by_row(const Evidence& evidence,
                                               Role role,
                                               const std::vector<std::int64_t>& shape,
                                               std::int64_t microbatch) {
  auto data = evidence.reference(evidence.data(role, microbatch));
  const std::vector<std::int64_t> rows(shape.begin(),
                                       shape.begin() + std::min(2L, std::ssize(shape)));
  if (!data || rows.size() != 2 || data->shape.size() != 2) {
    return std::nullopt;
  }
  // Activations are [s, b, h] where data are [b, s]; losses may have either order.
  const bool is_turned = data->shape[0] == rows[1] && data->shape[1] == rows[0];
  if (data->shape == rows && !(is_turned && shape.size() > 2)) {
    return std::move(data->data);
  }
  if (!is_turned) {
    return std::nullopt;
  }
  std::vector<double> turned(data->data.size());
  const auto samples = static_cast<std::size_t>(rows[1]);
  for (std::size_t i = 0; i < turned.size(); ++i) {
    turned[i] = data->data[i % samples * static_cast<std::size_t>(rows[0]) + i / samples];
  }
  return turned;
}

namespace {

constexpr std::size_t kMostModules = 8;

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
  std::vector<const Match*> list = known_inputs(evidence, output);
  if (!list.empty()) {
    return list;
  }
  for (const Match& match : evidence.matches()) {
    if (match.id == output) {
      break;
    }
    if (is_forward_beside(match, output)) {
      list.insert(list.begin(), &match);
    }
  }
  list.resize(std::min(list.size(), kMostModules));
  return list;
}

std::vector<const Match*> outputs_after(const Evidence& evidence, const TensorId& output) {
  std::vector<const Match*> list;
  bool after = false;
  for (const Match& match : evidence.matches()) {
    if (after && match.id.kind == Kind::kOutput && is_forward_beside(match, output) &&
        list.size() < kMostModules) {
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
