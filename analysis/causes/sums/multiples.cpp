// Multiples of the reference: one factor for the whole tensor, one for every rank's part, one for
// every row. A parameter after the step is judged through its first moment, which carries the
// factor of its gradient where the update itself hides it.
#include "analysis/causes/common/factors.h"
#include "analysis/causes/common/least_squares.h"
#include "analysis/causes/common/modules.h"
#include "analysis/causes/common/slices.h"
#include "analysis/causes/signatures.h"
#include "analysis/findings/wording.h"
#include "trace/base/kind.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>
#include <string>
#include <vector>

namespace ttrace {
namespace {

constexpr double kSame = 0.01;  // relative

bool is_same(double left, double right) {
  return std::abs(left - right) <= kSame * std::abs(right);
}

std::optional<double> factor_of(const Match& match) {
  const auto reference = Evidence::reference(&match);
  const auto candidate = Evidence::candidate(&match);
  if (!reference || !candidate || reference->shape != candidate->shape) {
    return std::nullopt;
  }
  const auto found = fit(std::span(&reference->data, 1), candidate->data);
  return found ? std::optional(found->coefficients[0]) : std::nullopt;
}

// The record before the finding, of the same micro-batch and direction, with the factor it has.
std::string factor_before(const Evidence& evidence) {
  const TensorId& id = evidence.finding().id;
  const auto before = records_before(evidence, id, [&](const Match& match) {
    return match.id.kind == id.kind && same_microbatch(match.id, id) && !match.reference.empty() &&
           !match.candidate.empty();
  });
  const bool known = id.kind == Kind::kOutput || id.kind == Kind::kGradOutput;
  const auto factor = known && !before.empty() ? factor_of(*before.front()) : std::nullopt;
  return factor ? fmt::format("; the record before it, {}, has the factor {}",
                              to_string(before.front()->id),
                              factor_text(*factor))
                : "";
}

// "; 7 of the 8 main_grad records looked at have this factor": of a gradient or moment of a
// parameter. A factor common to all of them does not begin in a module.
std::string common_factor(const Evidence& evidence, double factor) {
  constexpr int kLookedAt = 16;
  const TensorId& id = evidence.finding().id;
  const bool known = family_of(id.kind) == KindFamily::kParameterGradient || is_moment(id.kind);
  int same = 0;
  int all = 0;
  for (const Match& match : evidence.records(id.kind)) {
    const bool looked_at = known && match.id.microbatch == id.microbatch && all < kLookedAt;
    if (const auto other = looked_at ? factor_of(match) : std::nullopt) {
      ++all;
      same += is_same(*other, factor) ? 1 : 0;
    }
  }
  return all < 2 ? ""
                 : fmt::format("; {} of the {} {} records looked at have this factor",
                               same,
                               all,
                               name_of(id.kind));
}

// Gradients are clipped to a norm: divided by another one, all moments carry the norms' ratio.
std::string norm_ratio(const Evidence& evidence, double factor) {
  const TensorId& id = evidence.finding().id;
  for (const Match& match : evidence.records(Kind::kScalar)) {
    if (!is_moment(id.kind) || !evidence.vocabulary().is(Role::kGradientNorm, match.id.path)) {
      continue;
    }
    const auto reference = evidence.reference(&match);
    const auto candidate = evidence.candidate(&match);
    if (!reference || !candidate || reference->data.size() != 1 || candidate->data.size() != 1) {
      continue;
    }
    const double ratio =
        std::pow(reference->data[0] / candidate->data[0], id.kind == Kind::kExpAvg ? 1.0 : 2.0);
    if (!is_same(ratio, 1.0) && is_same(factor, ratio)) {
      return fmt::format(
          "; this is the factor that clipping by another norm gives: {} is {} and "
          "{} in the reference",
          match.id.path,
          short_number(candidate->data[0]),
          short_number(reference->data[0]));
    }
  }
  return "";
}

struct RankFactor {
  int rank = 0;
  double value = 1.0;
  double deviation = 0.0;
  bool equal = true;      // to the reference, as far as a factor is concerned
  double moved = 0.0;     // norm of the error that the factor explains
  double residual = 0.0;  // and of what it leaves
};

// The factor of every rank's part; none where a part is no multiple of the reference's, or where
// nothing was written to it.
std::vector<RankFactor> factors_of(const Match& match, const Values& reference) {
  constexpr double kLeft = 0.05;  // of a part's error may be left
  std::vector<RankFactor> factors;
  for (const RankPart& part : rank_parts(match.candidate, reference)) {
    const Values& right = part.sides.reference;
    const auto found = fit(std::span(&right.data, 1), part.sides.candidate.data);
    if (!found) {
      continue;  // nothing there
    }
    const double factor = found->coefficients[0];
    const bool equal = std::abs(factor - 1.0) <= kSame;
    const double moved = std::abs(factor - 1.0) * right.norm();
    if (std::abs(factor) <= kSame || (!equal && found->residual > kLeft * moved)) {
      return {};
    }
    factors.push_back({part.rank(), factor, found->deviations[0], equal, moved, found->residual});
  }
  return factors;
}

// "rank 1 has a x the reference's, a = 4.533 +- 1e-05; ranks 0, 2 have the reference's values"
std::string factors_text(const Evidence& evidence, const std::vector<RankFactor>& factors) {
  constexpr int kShown = 4;
  std::string text;
  std::vector<int> equal;
  int shown = 0;
  for (const RankFactor& factor : factors) {
    if (factor.equal) {
      equal.push_back(factor.rank);
    } else if (shown++ < kShown) {
      text += fmt::format("{}rank {} has a x the reference's, a = {}",
                          text.empty() ? "" : "; ",
                          factor.rank,
                          explain_factor(evidence, factor.value, factor.deviation));
    }
  }
  text += shown > kShown ? "; ..." : "";
  return equal.empty() ? text
                       : fmt::format("{}; {} {} the reference's values",
                                     text,
                                     ranks_text(equal),
                                     equal.size() > 1 ? "have" : "has");
}

// The hypothesis that every wrong part is such a multiple.
Hypothesis of_parts(const Evidence& evidence,
                    const std::vector<RankFactor>& factors,
                    std::string sentence) {
  Hypothesis found{
      .signature = Signature::kWrongFactor, .sentence = std::move(sentence), .error = 0.0};
  for (const RankFactor& factor : factors) {
    if (factor.equal) {
      continue;
    }
    found.residual = std::hypot(found.residual, factor.residual);
    found.error = std::hypot(found.error, factor.moved);
    const bool known = std::ranges::any_of(
        found.named.factors, [&](double other) { return is_same(other, factor.value); });
    found.bits += known ? 1.0 : bits_of_factor(evidence, factor.value, factor.deviation);
    found.named.factors.push_back(factor.value);
    found.named.ranks.push_back(factor.rank);
  }
  return found;
}

// A factor that only one of several copies has explains no more than that copy: see
// of_ranks().
Hypotheses of_all(const Evidence& evidence, const Sides& sides) {
  const auto fitted = sides.size() < 2 || evidence.copies_differ()
                          ? std::nullopt
                          : fit(std::span(&sides.reference.data, 1), sides.difference());
  if (!fitted || !evidence.explains(fitted->residual)) {
    return {};
  }
  const double factor = 1.0 + fitted->coefficients[0];
  const std::string text = explain_factor(evidence, factor, fitted->deviations[0]);
  Hypothesis found = about(
      sides,
      Signature::kWrongFactor,
      fitted->residual,
      (text == "0" ? "candidate = 0 x reference" : "candidate = a x reference, a = " + text) +
          factor_before(evidence) + common_factor(evidence, factor) + norm_ratio(evidence, factor));
  found.named = {.axes = axes_in(evidence, factor), .factors = {factor}};
  found.bits = bits_of_factor(evidence, factor, fitted->deviations[0]);
  return {std::move(found)};
}

// A loss that is a single number is a multiple of every other one, so its factor counts only as a
// number of this run.
Hypotheses of_single_loss(const Evidence& evidence, const Sides& sides) {
  const bool applies = sides.size() == 1 && evidence.finding().id.kind == Kind::kLoss &&
                       !evidence.copies_differ() && sides.reference.data[0] != 0.0;
  if (!applies) {
    return {};
  }
  const double factor = sides.candidate.data[0] / sides.reference.data[0];
  const double deviation = evidence.bound() / std::abs(sides.reference.data[0]);
  if (!has_meaning(evidence, factor, deviation)) {
    return {};
  }
  Hypothesis found =
      about(sides,
            Signature::kWrongFactor,
            0.0,
            "candidate = a x reference, a = " + explain_factor(evidence, factor, deviation));
  found.named = {.axes = axes_in(evidence, factor), .factors = {factor}};
  found.bits = bits_of_factor(evidence, factor, deviation);
  return {std::move(found)};
}

// Ranks run one program: where some copies are right, a factor explains the others only if it is a
// number of this run. A master or a parameter after the step shows by its first moment with which
// factor its gradient has entered the optimizer.
Hypotheses of_ranks(const Evidence& evidence) {
  const Kind kind = evidence.finding().id.kind;
  const bool after_step = is_updated_parameter(kind);
  const Match* const judged = after_step ? evidence.with_kind(Kind::kExpAvg) : &evidence.match();
  const auto reference = evidence.reference(judged);
  if ((evidence.sides() == nullptr && evidence.finding().tier() != Tier::kT1) || !reference ||
      (!after_step && judged->candidate.size() < 2)) {
    return {};
  }
  const auto factors = factors_of(*judged, *reference);
  if (std::ranges::all_of(factors, &RankFactor::equal)) {
    return {};
  }
  const std::string text = factors_text(evidence, factors);
  if (after_step) {
    return {of_parts(evidence,
                     factors,
                     fmt::format("its gradient enters the optimizer with another factor, which {} "
                                 "shows: {}. Check clipping, and the scale that is divided out",
                                 to_string(judged->id),
                                 text))};
  }
  const bool known = std::ranges::all_of(factors, [&](const RankFactor& factor) {
    return factor.equal || has_meaning(evidence, factor.value, factor.deviation);
  });
  const bool some_right = std::ranges::any_of(factors, &RankFactor::equal);
  return evidence.copies_differ() && some_right && !known
             ? Hypotheses()
             : Hypotheses{of_parts(evidence, factors, text)};
}

Hypotheses of_rows(const Evidence& evidence, const Sides& sides) {
  constexpr std::int64_t kFewest = 8;
  const SliceView last =
      sides.shape().empty() ? SliceView() : view_along(sides.shape(), sides.shape().size() - 1);
  if (last.size < kFewest || last.outer < kFewest) {
    return {};
  }
  const auto width = static_cast<std::size_t>(last.size);
  double left = 0.0;
  std::vector<double> factors;
  for (std::size_t start = 0; start < sides.size(); start += width) {
    const std::span r = std::span(sides.reference.data).subspan(start, width);
    const std::span c = std::span(sides.candidate.data).subspan(start, width);
    const double both = std::inner_product(r.begin(), r.end(), c.begin(), 0.0);
    const double squared = std::inner_product(r.begin(), r.end(), r.begin(), 0.0);
    factors.push_back(squared > 0.0 ? both / squared : 1.0);
    if (squared > 0.0 && std::abs(factors.back()) <= kSame) {
      return {};  // nothing was written there
    }
    for (std::size_t i = 0; i < width; ++i) {
      left += std::pow(c[i] - factors.back() * r[i], 2);
    }
  }
  const auto moved =
      std::ranges::count_if(factors, [](double factor) { return std::abs(factor - 1.0) > kSame; });
  const auto [least, most] = std::ranges::minmax(factors);
  // One factor for all rows is not this hypothesis.
  if (2 * moved < last.outer || most - least <= kSame || !evidence.explains(std::sqrt(left))) {
    return {};
  }
  Hypothesis found = about(
      sides,
      Signature::kWrongFactor,
      std::sqrt(left),
      fmt::format("every row of the candidate is a multiple of the reference's row, by factors "
                  "from {} to {}: weights or a norm per row are not normalised, or differ",
                  factor_text(least),
                  factor_text(most)));
  found.named.factors = {least, most};
  found.coefficients = static_cast<double>(factors.size());
  return {std::move(found)};
}

}  // namespace

Hypotheses find_multiple(const Evidence& evidence) {
  Hypotheses found = of_ranks(evidence);
  if (const Sides* const sides = evidence.sides()) {
    append(found, of_all(evidence, *sides));
    append(found, of_rows(evidence, *sides));
    append(found, of_single_loss(evidence, *sides));
  }
  return found;
}

}  // namespace ttrace
