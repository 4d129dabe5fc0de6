#include "analysis/causes/common/factors.h"
#include "analysis/causes/signatures.h"
#include "analysis/findings/wording.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>

namespace ttrace {
namespace {

// Of one micro-batch, on one side.
struct LossPart {
  double counted = 0.0;  // sum of the losses of tokens that count
  double tokens = 0.0;   // that count
  double whole = 0.0;    // sum over all tokens
  double all = 0.0;      // tokens
};

// Losses [s, b] or [b, s] with the mask in either order; without a mask all tokens count.
LossPart part_of(const Values& loss, const std::optional<Values>& mask) {
  LossPart part;
  const bool turned = mask && loss.shape.size() == 2 && mask->shape.size() == 2 &&
                      mask->shape[0] == loss.shape[1] && mask->shape[0] != loss.shape[0];
  const std::size_t columns = loss.shape.size() == 2 ? static_cast<std::size_t>(loss.shape[1]) : 1;
  for (std::size_t i = 0; i < loss.data.size(); ++i) {
    const std::size_t at = turned ? i % columns * (loss.data.size() / columns) + i / columns : i;
    const double weight = mask && at < mask->data.size() ? mask->data[at] : 1.0;
    part.counted += weight * loss.data[i];
    part.tokens += weight;
    part.whole += loss.data[i];
    part.all += 1.0;
  }
  return part;
}

std::vector<LossPart> parts_of(const Evidence& evidence, WhichRun run) {
  std::vector<LossPart> parts;
  for (const Match& match : evidence.matches()) {
    if (match.id.kind != Kind::kLoss || match.id.step != evidence.finding().id.step) {
      continue;
    }
    const auto loss = evidence.value(match, run);
    const Match* mask = evidence.data(Role::kLossMask, match.id.microbatch);
    if (!loss) {
      return {};
    }
    parts.push_back(part_of(*loss, mask == nullptr ? std::nullopt : evidence.reference(*mask)));
  }
  return parts;
}

double total(const std::vector<LossPart>& parts, double LossPart::*of) {
  double sum = 0.0;
  for (const LossPart& part : parts) {
    sum += part.*of;
  }
  return sum;
}

struct Rule {
  std::string name;
  std::function<double(const std::vector<LossPart>&)> value;
};

std::vector<Rule> rules() {
  return {{"the mean over all tokens that count",
           [](const auto& parts) {
             return total(parts, &LossPart::counted) / total(parts, &LossPart::tokens);
           }},
          {"the mean of the micro-batches' means",
           [](const auto& parts) {
             double sum = 0.0;
             for (const LossPart& part : parts) {
               sum += part.counted / part.tokens;
             }
             return sum / static_cast<double>(parts.size());
           }},
          {"the sum of the micro-batches' means",
           [](const auto& parts) {
             double sum = 0.0;
             for (const LossPart& part : parts) {
               sum += part.counted / part.tokens;
             }
             return sum;
           }},
          {"the mean over all tokens, those that do not count included",
           [](const auto& parts) {
             return total(parts, &LossPart::whole) / total(parts, &LossPart::all);
           }},
          {"the sum over tokens that count, divided by all tokens",
           [](const auto& parts) {
             return total(parts, &LossPart::counted) / total(parts, &LossPart::all);
           }},
          {"the mean of the last micro-batch alone",
           [](const auto& parts) { return parts.back().counted / parts.back().tokens; }},
          {"the mean of the first micro-batch alone",
           [](const auto& parts) { return parts.front().counted / parts.front().tokens; }}};
}

constexpr double kSameLoss = 2e-4;  // losses of tokens carry more round-off than their mean

bool is_near(double value, double expected) {
  return std::abs(value - expected) <= kSameLoss * std::abs(expected);
}

}  // namespace

std::optional<Hypothesis> find_loss_rule(const Evidence& evidence) {
  const TensorId& id = evidence.finding().id;
  const Sides* sides = evidence.sides();
  if (id.kind != Kind::kScalar || !evidence.vocabulary().is(Role::kLoss, id.path) ||
      sides == nullptr || sides->reference.data.size() != 1) {
    return std::nullopt;
  }
  const auto reference = parts_of(evidence, WhichRun::kReference);
  const auto candidate = parts_of(evidence, WhichRun::kCandidate);
  if (reference.empty() || candidate.size() != reference.size()) {
    return std::nullopt;
  }
  const double r = sides->reference.data[0];
  const double c = sides->candidate.data[0];
  const std::vector<Rule> all = rules();
  const auto right = std::find_if(
      all.begin(), all.end(), [&](const Rule& rule) { return is_near(r, rule.value(reference)); });
  if (right == all.end()) {
    return std::nullopt;
  }
  const auto wrong = std::find_if(
      all.begin(), all.end(), [&](const Rule& rule) { return is_near(c, rule.value(candidate)); });
  if (wrong == right) {
    return std::nullopt;  // the losses of tokens differ, not what is made of them
  }
  const double clean = right->value(candidate);
  const double ratio = c / clean;
  const std::string factor = explain_factor(evidence, ratio, kSameLoss * ratio);
  if (wrong == all.end() && factor.find('=') == std::string::npos) {
    return std::nullopt;  // any number is some factor times any other
  }
  const std::string made =
      wrong != all.end() ? wrong->name : "a x " + right->name + ", a = " + factor;
  Hypothesis found{.signature = Signature::kLossNormalisation,
                   .sentence = fmt::format(
                       "from its own losses of tokens the candidate makes {}; the reference's is "
                       "{}, which of these losses is {} and not {}",
                       made,
                       right->name,
                       short_number(clean),
                       short_number(c)),
                   .error = std::abs(c - clean),
                   .residual = wrong != all.end() ? std::abs(c - wrong->value(candidate)) : 0.0,
                   .bits = bits_of_choice(static_cast<double>(all.size()))};
  if (wrong == all.end()) {
    found.named = {.axes = axes_in(evidence, ratio), .factors = {ratio}};
    found.coefficients = 1.0;
  }
  return found;
}

}  // namespace ttrace
