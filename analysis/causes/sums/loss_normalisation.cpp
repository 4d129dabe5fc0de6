// A mean loss that another rule makes of the losses of tokens: another divisor, or other tokens.
#include "analysis/causes/common/factors.h"
#include "analysis/causes/signatures.h"
#include "analysis/findings/wording.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace ttrace {
namespace {

// What may be made of the losses of tokens.
using Rules = std::vector<std::pair<std::string, double>>;

// Losses [s, b] or [b, s] with the mask in either order; without a mask all tokens count. None
// where the losses of a micro-batch are not known.
Rules rules_of(const Evidence& evidence, WhichRun run) {
  double counted = 0.0;  // sum of the losses of tokens that count
  double tokens = 0.0;   // that count
  double whole = 0.0;    // sum over all tokens
  double all = 0.0;      // tokens
  std::vector<double> means;
  for (const Match& match : evidence.records(Kind::kLoss)) {
    const auto loss = evidence.value(&match, run);
    if (!loss) {
      return {};
    }
    const auto mask = evidence.data_by_row(Role::kLossMask, match.id.microbatch, loss->shape);
    double own = 0.0;
    double own_tokens = 0.0;
    for (std::size_t i = 0; i < loss->data.size(); ++i) {
      const double weight = mask ? (*mask)[i] : 1.0;
      own += weight * loss->data[i];
      own_tokens += weight;
      whole += loss->data[i];
    }
    counted += own;
    tokens += own_tokens;
    all += static_cast<double>(loss->data.size());
    means.push_back(own / own_tokens);
  }
  if (means.empty()) {
    return {};
  }
  const double sum = std::accumulate(means.begin(), means.end(), 0.0);
  return {{"the mean over all tokens that count", counted / tokens},
          {"the mean of the micro-batches' means", sum / static_cast<double>(means.size())},
          {"the sum of the micro-batches' means", sum},
          {"the mean over all tokens, those that do not count included", whole / all},
          {"the sum over tokens that count, divided by all tokens", counted / all},
          {"the mean of the last micro-batch alone", means.back()},
          {"the mean of the first micro-batch alone", means.front()}};
}

constexpr double kSameLoss = 2e-4;  // losses of tokens carry more round-off than their mean

// The first rule that gives `value`; the number of rules where none does.
std::size_t rule_for(double value, const Rules& rules) {
  const auto found = std::ranges::find_if(rules, [&](const auto& rule) {
    return std::abs(value - rule.second) <= kSameLoss * std::abs(rule.second);
  });
  return static_cast<std::size_t>(found - rules.begin());
}

}  // namespace

Hypotheses find_loss_rule(const Evidence& evidence, const Sides& sides) {
  if (!evidence.vocabulary().is_scalar(Role::kLoss, evidence.finding().id) || sides.size() != 1) {
    return {};
  }
  const Rules reference = rules_of(evidence, WhichRun::kReference);
  const Rules candidate = rules_of(evidence, WhichRun::kCandidate);
  const double c = sides.candidate.data[0];
  const std::size_t right = rule_for(sides.reference.data[0], reference);
  const std::size_t other = rule_for(c, candidate);
  if (right == reference.size() || candidate.empty() || other == right) {
    return {};  // the losses of tokens differ, not what is made of them
  }
  const auto& [right_name, clean] = candidate[right];
  const bool is_rule = other < candidate.size();
  const double ratio = c / clean;
  const double deviation = kSameLoss * ratio;
  if (!is_rule && !has_meaning(evidence, ratio, deviation)) {
    return {};  // any number is some factor times any other
  }
  Hypothesis found{
      .signature = Signature::kLossNormalisation,
      .sentence = fmt::format(
          "the candidate computes {} of its losses per token; the reference computes {}, which of "
          "these losses is {} and not {}",
          is_rule ? candidate[other].first
                  : "a x " + right_name + ", a = " + explain_factor(evidence, ratio, deviation),
          right_name,
          short_number(clean),
          short_number(c)),
      .error = std::abs(c - clean),
      .residual = is_rule ? std::abs(c - candidate[other].second) : 0.0,
      .bits = bits_of_choice(static_cast<double>(candidate.size()))};
  if (!is_rule) {
    found.named = {.axes = axes_in(evidence, ratio), .factors = {ratio}};
    found.coefficients = 1.0;
  }
  return {std::move(found)};
}

}  // namespace ttrace
