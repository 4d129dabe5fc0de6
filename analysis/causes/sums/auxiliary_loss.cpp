// The gradients that a router's auxiliary losses send to its scores, computed again from the
// scores and the choices of experts. With p = softmax(scores) of T tokens that count, E experts of
// which each token takes k, and n_e tokens at expert e,
//   load balancing: L = E / (k T^2) sum_e n_e sum_t p_te,
//     dL/ds_te = E / (k T^2) p_te (n_e - sum_j p_tj n_j)
//   z loss: L = mean_t (log sum_e exp s_te)^2,  dL/ds_te = 2 / T p_te log sum_j exp s_tj
// Source: Switch Transformers (arXiv 2101.03961) for the first, ST-MoE (arXiv 2202.08906) for the
// second.
#include "analysis/causes/common/extra_addend.h"
#include "analysis/causes/common/factors.h"
#include "analysis/causes/common/modules.h"
#include "analysis/causes/signatures.h"
#include "analysis/findings/wording.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

namespace ttrace {
namespace {

struct Routed {
  Values scores;               // [s, b, E]
  Values chosen;               // [s, b, k]
  std::vector<double> counts;  // 1 for tokens that count, by row [s, b]
  double tokens = 0.0;

  [[nodiscard]] std::size_t experts() const {
    return static_cast<std::size_t>(scores.shape.back());
  }
  [[nodiscard]] std::size_t taken() const { return static_cast<std::size_t>(chosen.shape.back()); }
  [[nodiscard]] std::size_t rows() const { return scores.data.size() / experts(); }
};

// 1 for tokens that count; the mask [b, s] or [s, b] as rows [s, b].
std::vector<double> counted_rows(const Evidence& evidence, const Values& scores) {
  std::vector<double> counts(scores.data.size() / static_cast<std::size_t>(scores.shape.back()),
                             1.0);
  const Match* match = evidence.data(Role::kLossMask, evidence.finding().id.microbatch);
  const auto mask = match == nullptr ? std::nullopt : evidence.reference(*match);
  if (!mask || mask->data.size() != counts.size() || mask->shape.size() != 2) {
    return counts;
  }
  const bool turned = mask->shape[0] != scores.shape[0];
  const auto columns = static_cast<std::size_t>(mask->shape[1]);
  const std::size_t samples = counts.size() / columns;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    counts[turned ? i % columns * samples + i / columns : i] = mask->data[i];
  }
  return counts;
}

std::optional<Routed> routed(const Evidence& evidence) {
  const std::string& path = evidence.finding().id.path;
  auto scores = candidate_of(evidence, Kind::kOutput, path);
  auto chosen = candidate_of(evidence, Kind::kRouting, path);
  if (!scores || !chosen || scores->shape.size() != 3 || chosen->shape.size() != 3 ||
      scores->shape[0] != chosen->shape[0] || scores->shape[1] != chosen->shape[1] ||
      scores->shape != evidence.sides()->reference.shape) {
    return std::nullopt;
  }
  Routed result{*std::move(scores), *std::move(chosen), {}, 0.0};
  result.counts = counted_rows(evidence, result.scores);
  for (const double count : result.counts) {
    result.tokens += count;
  }
  return result.tokens > 0.0 ? std::optional(std::move(result)) : std::nullopt;
}

// Tokens at every expert.
std::vector<double> loads_of(const Routed& routed) {
  std::vector<double> loads(routed.experts());
  for (std::size_t i = 0; i < routed.chosen.data.size(); ++i) {
    const auto expert = static_cast<std::size_t>(routed.chosen.data[i]);
    if (expert < loads.size()) {
      loads[expert] += routed.counts[i / routed.taken()];
    }
  }
  return loads;
}

struct ScoreGradients {
  std::vector<double> balance;
  std::vector<double> z;
};

ScoreGradients gradients_of(const Routed& routed) {
  const std::size_t experts = routed.experts();
  const std::vector<double> loads = loads_of(routed);
  const double factor = static_cast<double>(experts) /
                        (static_cast<double>(routed.taken()) * routed.tokens * routed.tokens);
  ScoreGradients result{std::vector<double>(routed.scores.data.size()),
                        std::vector<double>(routed.scores.data.size())};
  std::vector<double> p(experts);
  for (std::size_t row = 0; row < routed.rows(); ++row) {
    const double* const scores = routed.scores.data.data() + row * experts;
    const double highest = *std::max_element(scores, scores + experts);
    double sum = 0.0;
    for (std::size_t e = 0; e < experts; ++e) {
      p[e] = std::exp(scores[e] - highest);
      sum += p[e];
    }
    double mean = 0.0;
    for (std::size_t e = 0; e < experts; ++e) {
      p[e] /= sum;
      mean += p[e] * loads[e];
    }
    const double count = routed.counts[row];
    for (std::size_t e = 0; e < experts; ++e) {
      result.balance[row * experts + e] = count * factor * p[e] * (loads[e] - mean);
      result.z[row * experts + e] = count * 2.0 / routed.tokens * p[e] * (highest + std::log(sum));
    }
  }
  return result;
}

// ": it counts 2.000 +- 0 = tp times": the loss enters with its own weight, and with a
// micro-batch's share of the step or, where gradients are divided by tokens later, once per token.
std::string counted_text(const Evidence& evidence,
                         double tokens,
                         double coefficient,
                         double deviation,
                         const std::string& key) {
  constexpr double kNothing = 1e-3;
  const auto weight = evidence.model_number(key);
  for (const double share : {1.0 / std::max(1, evidence.microbatches()), tokens}) {
    const double usual = weight.value_or(0.0) * share;
    const double times = usual > 0.0 ? 1.0 + coefficient / usual : 1.0;
    if (std::abs(times) < kNothing) {
      return " (it is not in the sum)";
    }
    for (const Factor& factor : meaningful_factors(evidence)) {
      if (std::abs(times - factor.value) <= kNothing * std::abs(factor.value)) {
        return " (it counts " + explain_factor(evidence, times, deviation / usual) + " times)";
      }
    }
  }
  return "";
}

}  // namespace

std::optional<Hypothesis> find_auxiliary_gradient(const Evidence& evidence) {
  const Sides* sides = evidence.sides();
  if (sides == nullptr || evidence.finding().id.kind != Kind::kGradOutput ||
      record_of(evidence, Kind::kRouting, evidence.finding().id.path) == nullptr) {
    return std::nullopt;
  }
  const auto scores = routed(evidence);
  if (!scores) {
    return std::nullopt;
  }
  const auto addend = [&](const std::vector<double>& gradient, const char* loss, const char* key) {
    return ExtraAddend{gradient,
                       fmt::format("the gradient of the {} loss", loss),
                       [&evidence, tokens = scores->tokens, key](double a, double deviation) {
                         return counted_text(evidence, tokens, a, deviation, key);
                       }};
  };
  const ScoreGradients gradients = gradients_of(*scores);
  const ExtraAddend balance = addend(gradients.balance, "load-balancing", "aux_loss");
  const ExtraAddend z = addend(gradients.z, "z", "z_loss");
  const std::vector<std::vector<ExtraAddend>> sums = {{balance}, {z}, {balance, z}};
  for (const std::vector<ExtraAddend>& sum : sums) {
    auto found = read_extra_addends(sum, sides->difference(), evidence.tolerance(sides->error));
    if (found) {
      found->bits = bits_of_choice(static_cast<double>(sums.size()));
      return found;
    }
  }
  return std::nullopt;
}

}  // namespace ttrace
