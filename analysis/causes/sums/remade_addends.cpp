#include "analysis/causes/sums/remade_addends.h"

#include "analysis/causes/common/modules.h"
#include "analysis/causes/common/replay.h"
#include "analysis/checks/structure.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace ttrace {
namespace {

// The module's call in one micro-batch.
struct Use {
  TensorId output;
  std::vector<int> ranks;
  Values gradient;  // of the output

  [[nodiscard]] std::size_t width() const {
    return gradient.shape.empty() ? 0 : static_cast<std::size_t>(gradient.shape.back());
  }
  [[nodiscard]] std::size_t rows() const { return gradient.data.size() / std::max(width(), 1UL); }
};

using Numbers = std::optional<std::vector<double>>;

// g y / w, summed over the rows, for y = w x + b of a norm: x is what the norm made of its input.
Numbers of_norm(const Evidence& evidence, const Use& use, const Values& reference) {
  const std::string& module = use.output.path;
  const auto output = evidence.value(use.output, WhichRun::kCandidate);
  const auto weight = evidence.value(weight_id(use.output.step, module), WhichRun::kCandidate);
  const auto bias = evidence.value(bias_id(use.output.step, module), WhichRun::kCandidate);
  if (reference.shape.size() != 1 || !output || !weight || weight->shape != reference.shape ||
      output->shape != use.gradient.shape || use.width() != weight->data.size() ||
      (bias && bias->shape != weight->shape) || std::ranges::count(weight->data, 0.0) > 0) {
    return std::nullopt;
  }
  std::vector<double> sum(use.width());
  for (std::size_t i = 0; i < use.gradient.data.size(); ++i) {
    const std::size_t column = i % sum.size();
    const double shift = bias ? bias->data[column] : 0.0;
    sum[column] += use.gradient.data[i] * (output->data[i] - shift) / weight->data[column];
  }
  return sum;
}

// g' x.
Numbers of_linear(const Evidence& evidence, const Use& use, const Values& reference) {
  constexpr double kMostProducts = 1e9;
  if (reference.shape.size() != 2 || use.width() != static_cast<std::size_t>(reference.shape[0]) ||
      static_cast<double>(use.rows()) * static_cast<double>(reference.data.size()) >
          kMostProducts) {
    return std::nullopt;
  }
  for (const Match* match : inputs_of(evidence, use.output)) {
    const auto input = evidence.candidate(match);
    if (!input || input->shape.empty() || input->shape.back() != reference.shape[1]) {
      continue;
    }
    if (auto sum = weight_gradient(use.gradient, *input); !sum.empty()) {
      return sum;
    }
  }
  return std::nullopt;
}

// Rows of g, added to the rows of their tokens.
Numbers of_embedding(const Evidence& evidence, const Use& use, const Values& reference) {
  const auto tokens =
      evidence.data_by_row(Role::kTokens, use.output.microbatch, use.gradient.shape);
  if (reference.shape.size() != 2 || !tokens || tokens->size() != use.rows() ||
      use.width() != static_cast<std::size_t>(reference.shape[1])) {
    return std::nullopt;
  }
  std::vector<double> sum(reference.data.size());
  for (std::size_t i = 0; i < use.gradient.data.size(); ++i) {
    const double token = (*tokens)[i / use.width()];
    if (token < 0.0 || token >= static_cast<double>(reference.shape[0])) {
      return std::nullopt;
    }
    sum[static_cast<std::size_t>(token) * use.width() + i % use.width()] += use.gradient.data[i];
  }
  return sum;
}

// Of every micro-batch, whose first call is the only one.
std::vector<Use> uses_of(const Evidence& evidence, const std::string& module) {
  std::vector<Use> uses;
  for (const Match& match : evidence.records(Kind::kGradOutput)) {
    if (match.id.path != module || match.candidate.empty()) {
      continue;
    }
    auto gradient = evidence.candidate(&match);
    if (!gradient || match.id.slot != 0 || match.id.call != 0) {
      return {};
    }
    uses.push_back(
        {as_kind(match.id, Kind::kOutput), ranks_of(match.candidate), *std::move(gradient)});
  }
  return uses;
}

}  // namespace

AddendColumns remade_addends(const Evidence& evidence, const Values& reference) {
  const TensorId& id = evidence.finding().id;
  const std::string module = module_of(id.path);
  const std::vector<Use> uses =
      id.path == weight_id(id.step, module).path ? uses_of(evidence, module) : std::vector<Use>();
  if (uses.size() < 2 || uses.size() > kMostAddends) {
    return {};
  }
  for (const auto& formula : {of_norm, of_linear, of_embedding}) {
    AddendColumns addends;
    for (const Use& use : uses) {
      if (auto numbers = formula(evidence, use, reference)) {
        addends.list.push_back({use.ranks, use.output.microbatch});
        addends.columns.push_back(*std::move(numbers));
      }
    }
    if (addends.columns.size() == uses.size() && is_sum_of(addends.columns, reference.data)) {
      return addends;
    }
  }
  return {};
}

}  // namespace ttrace
