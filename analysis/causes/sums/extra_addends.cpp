// Sums with an addend too many: what their buffer held before, or the gradient that a router's
// auxiliary losses send to its scores. The latter is computed again from the scores and the choices
// of experts. With p = softmax(scores) of T tokens that count, E experts of which each token takes
// k, and n_e tokens at expert e,
//   load balancing: L = E / (k T^2) sum_e n_e sum_t p_te,
//     dL/ds_te = E / (k T^2) p_te (n_e - sum_j p_tj n_j)
//   z loss: L = mean_t (log sum_e exp s_te)^2,  dL/ds_te = 2 / T p_te log sum_j exp s_tj
// Source: Switch Transformers (arXiv 2101.03961) for the first, ST-MoE (arXiv 2202.08906) for the
// second.
//
// The load-balancing loss is a product of two means over tokens, so it is not linear in them: if
// ranks compute it of their own tokens and average, its gradient is another one than that of all
// tokens, and both programs may be right. Then c - r = a (b_parts - b_all), with b_parts what the
// ranks' own tokens give and b_all what all give. Both are fitted apart: weights that differ are a
// wrong coefficient.
#include "analysis/align/model_numbers.h"
#include "analysis/causes/common/addends.h"
#include "analysis/causes/common/factors.h"
#include "analysis/causes/common/least_squares.h"
#include "analysis/causes/common/modules.h"
#include "analysis/causes/signatures.h"
#include "trace/base/kind.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace ttrace {
namespace {

// What the buffer of the finding may have held when the sum began. A moment of the optimizer is a
// sum with its value one step earlier: find_optimizer() looks at that.
std::vector<std::pair<TensorId, std::string>> contents(const TensorId& id) {
  std::vector<std::pair<TensorId, std::string>> list;
  if (is_moment(id.kind)) {
    return list;
  }
  list.emplace_back(id, "its value one step earlier");
  --list.back().first.step;
  if (family_of(id.kind) == KindFamily::kParameterGradient) {
    list.emplace_back(id, "the parameter itself");
    list.back().first.microbatch = kNoMicrobatch;
    list.back().first.kind = Kind::kParam;
  }
  if (id.microbatch > 0) {
    list.emplace_back(id, "its value for the micro-batch before");
    --list.back().first.microbatch;
  }
  return list;
}

struct Routed {
  Values scores;               // [..., E]
  Values chosen;               // [..., k], of as many rows
  std::vector<double> counts;  // 1 for tokens that count, by row
  double tokens = 0.0;

  [[nodiscard]] std::size_t experts() const {
    return static_cast<std::size_t>(scores.shape.back());
  }
  [[nodiscard]] std::size_t taken() const { return static_cast<std::size_t>(chosen.shape.back()); }
};

// The choices of a router, or of the nearest module around it that makes them.
std::optional<Values> choices_near(const Evidence& evidence, const std::string& path) {
  auto chosen = candidate_of(evidence, Kind::kRouting, path);
  for (const std::string& outer : outer_paths(path)) {
    chosen = chosen ? std::move(chosen) : candidate_of(evidence, Kind::kRouting, outer);
  }
  return chosen;
}

std::optional<Routed> routed(const Evidence& evidence, const Sides& sides) {
  const std::string& path = evidence.finding().id.path;
  auto scores = candidate_of(evidence, Kind::kOutput, path);
  auto chosen = choices_near(evidence, path);
  if (evidence.finding().id.kind != Kind::kGradOutput || !scores || !chosen ||
      scores->shape.size() < 2 || scores->shape != sides.shape() || chosen->shape.size() < 2 ||
      scores->data.size() * static_cast<std::size_t>(chosen->shape.back()) !=
          chosen->data.size() * static_cast<std::size_t>(scores->shape.back())) {
    return std::nullopt;
  }
  const std::vector<double> all(
      scores->data.size() / static_cast<std::size_t>(scores->shape.back()), 1.0);
  auto counts =
      scores->shape.size() != 3
          ? all
          : evidence.data_by_row(Role::kLossMask, evidence.finding().id.microbatch, scores->shape)
                .value_or(all);
  const double tokens = std::accumulate(counts.begin(), counts.end(), 0.0);
  Routed result{*std::move(scores), *std::move(chosen), std::move(counts), tokens};
  return tokens > 0.0 ? std::optional(std::move(result)) : std::nullopt;
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
  ScoreGradients result;
  std::vector<double> p(experts);
  for (std::size_t row = 0; row < routed.counts.size(); ++row) {
    const double* const scores = routed.scores.data.data() + row * experts;
    const double highest = *std::max_element(scores, scores + experts);
    std::transform(scores, scores + experts, p.begin(), [&](double score) {
      return std::exp(score - highest);
    });
    const double sum = std::accumulate(p.begin(), p.end(), 0.0);
    const double mean = std::inner_product(p.begin(), p.end(), loads.begin(), 0.0) / sum;
    for (std::size_t e = 0; e < experts; ++e) {
      const double counted = routed.counts[row] * p[e] / sum;
      result.balance.push_back(factor * counted * (loads[e] - mean));
      result.z.push_back(2.0 / routed.tokens * counted * (highest + std::log(sum)));
    }
  }
  return result;
}

// Tokens that each group of ranks has: a number by row; empty if all ranks have all of them.
std::vector<double> parts_of(const Evidence& evidence, const Routed& routed) {
  const std::size_t experts = routed.experts();
  std::vector<double> rows(routed.scores.data.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rows[i] = static_cast<double>(i / experts);
  }
  std::map<double, double> numbers;  // of a part, by its first row
  std::vector<double> parts(rows.size() / experts, -1.0);
  for (const Shard& shard : evidence.match().candidate) {
    const std::vector<double> own = values_at(rows, shard);
    if (own.empty()) {
      return {};
    }
    const double number = numbers.try_emplace(own.front(), numbers.size()).first->second;
    for (const double row : own) {
      double& part = parts[static_cast<std::size_t>(row)];
      if (part >= 0.0 && part != number) {
        return {};  // parts overlap
      }
      part = number;
    }
  }
  const bool are_whole = std::ranges::find(parts, -1.0) == parts.end();
  return are_whole && numbers.size() > 1 ? parts : std::vector<double>();
}

// b_parts: every part's tokens as if they were all, divided by the number of parts.
std::vector<double> balance_of_parts(const Routed& routed, std::span<const double> parts) {
  const double highest = *std::ranges::max_element(parts);
  std::vector<double> sum(routed.scores.data.size());
  for (double number = 0.0; number <= highest; ++number) {
    Routed part = routed;
    for (std::size_t row = 0; row < parts.size(); ++row) {
      part.counts[row] *= parts[row] == number ? 1.0 : 0.0;
    }
    part.tokens = std::accumulate(part.counts.begin(), part.counts.end(), 0.0);
    if (!(part.tokens > 0.0)) {
      continue;
    }
    const std::vector<double> own = gradients_of(part).balance;
    std::ranges::transform(
        sum, own, sum.begin(), [&](double a, double b) { return a + b / (highest + 1.0); });
  }
  return sum;
}

Hypotheses balance_of_own_tokens(const Evidence& evidence, const Sides& sides) {
  constexpr double kAlike = 0.01;
  const auto scores = routed(evidence, sides);
  const std::vector<double> parts = scores ? parts_of(evidence, *scores) : std::vector<double>();
  if (parts.empty()) {
    return {};
  }
  const std::vector<std::vector<double>> columns = {balance_of_parts(*scores, parts),
                                                    gradients_of(*scores).balance};
  const auto found = fit(columns, sides.difference());
  if (!found || !evidence.explains(found->residual) || !(found->coefficients[0] > 0.0) ||
      !(found->coefficients[1] < 0.0)) {
    return {};
  }
  const double own = found->coefficients[0];
  const double ratio = -own / found->coefficients[1];
  const double deviation =
      ratio * std::hypot(found->deviations[0] / own, found->deviations[1] / found->coefficients[1]);
  const bool is_same = std::abs(ratio - 1.0) <= std::max(kAlike, 3.0 * deviation);
  Hypothesis claim = about(
      sides,
      Signature::kLossNormalisation,
      found->residual,
      "a loss that is not linear in the samples: every rank computes the load-balancing loss of "
      "its "
      "own tokens, and the reference that of all; " +
          fall_text(sides.error, found->residual) +
          (is_same
               ? ". Both have the same weight, so both programs may be right: let the reference "
                 "compute this loss for each part of the batch that a rank has, and average, to "
                 "compare them"
               : ". The ranks' loss counts " + explain_factor(evidence, ratio, deviation) +
                     " times as much as the reference's"));
  claim.named.factors = {ratio};
  claim.coefficients = 2.0;
  return {std::move(claim)};
}

// "it counts 2.000 +- 0 = tp times": the loss enters with its own weight, and with a
// micro-batch's share of the step or, where gradients are divided by tokens later, once per token.
Meaning counted(const Evidence& evidence,
                double tokens,
                double coefficient,
                double deviation,
                const std::string& key) {
  constexpr double kNothing = 1e-3;
  const double weight = evidence.model_number(key).value_or(0.0);
  for (const double share : {1.0 / std::max(1, evidence.microbatches()), tokens}) {
    const double usual = weight * share;
    const double times = usual > 0.0 ? 1.0 + coefficient / usual : 1.0;
    if (std::abs(times) < kNothing) {
      return {" (it is not in the sum)", {.factors = {0.0}}};
    }
    for (const Factor& factor : meaningful_factors(evidence)) {
      if (std::abs(times - factor.value) <= kNothing * std::abs(factor.value)) {
        return {" (it counts " + explain_factor(evidence, times, deviation / usual) + " times)",
                {.axes = axes_in(evidence, times), .factors = {times}}};
      }
    }
  }
  return {};
}

// All sums that are as simple as one another.
Hypotheses any_of(const Evidence& evidence,
                  const Sides& sides,
                  const std::vector<std::vector<ExtraAddend>>& sums) {
  Hypotheses found;
  for (const std::vector<ExtraAddend>& sum : sums) {
    append(found, read_extra_addends(sum, sides.difference(), evidence.tolerance(sides.error)));
  }
  return chosen_of(sums.size(), std::move(found));
}

Hypotheses leftover(const Evidence& evidence, const Sides& sides) {
  constexpr std::size_t kFewest = 8;
  std::vector<std::vector<ExtraAddend>> sums;
  for (const auto& [id, name] : contents(evidence.finding().id)) {
    auto value = evidence.value(id, WhichRun::kCandidate);
    if (value && value->shape == sides.shape() && sides.size() >= kFewest) {
      sums.push_back({{std::move(value->data), to_string(id) + ", " + name, [](double, double) {
                         return Meaning{": the buffer was not set to zero before the sum began"};
                       }}});
    }
  }
  Hypotheses found = any_of(evidence, sides, sums);
  std::erase_if(found, [](const auto& each) { return each.named.factors.front() <= 0.0; });
  return found;
}

Hypotheses auxiliary_gradient(const Evidence& evidence, const Sides& sides) {
  const auto scores = routed(evidence, sides);
  if (!scores) {
    return {};
  }
  ScoreGradients gradients = gradients_of(*scores);
  const auto addend = [&](std::vector<double>& gradient, const char* loss, const char* key) {
    return ExtraAddend{std::move(gradient),
                       "the gradient of the " + std::string(loss) + " loss",
                       [&evidence, tokens = scores->tokens, key](double a, double deviation) {
                         return counted(evidence, tokens, a, deviation, key);
                       }};
  };
  const ExtraAddend balance = addend(gradients.balance, "load-balancing", model_keys::kAuxLoss);
  const ExtraAddend z = addend(gradients.z, "z", model_keys::kZLoss);
  return any_of(evidence, sides, {{balance}, {z}, {balance, z}});
}

}  // namespace

Hypotheses find_extra_addend(const Evidence& evidence, const Sides& sides) {
  Hypotheses found = leftover(evidence, sides);
  append(found, auxiliary_gradient(evidence, sides));
  append(found, balance_of_own_tokens(evidence, sides));
  return found;
}

}  // namespace ttrace
