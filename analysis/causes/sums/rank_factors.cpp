// Factors that are not one for the whole tensor: another one on every rank that holds a part, or
// one for every row. A parameter after the step is judged through its first moment, which carries
// the factor of its gradient where the update itself hides it.
#include "analysis/causes/common/factors.h"
#include "analysis/causes/common/least_squares.h"
#include "analysis/causes/common/slices.h"
#include "analysis/causes/signatures.h"
#include "analysis/findings/wording.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>
#include <string>
#include <vector>

namespace ttrace {
namespace {

constexpr double kSame = 0.01;
constexpr double kLeft = 0.05;  // of a part's error may be left

struct RankFactor {
  int rank = 0;
  double value = 1.0;
  double deviation = 0.0;
  bool equal = true;      // to the reference, as far as a factor is concerned
  double moved = 0.0;     // norm of the error that the factor explains
  double residual = 0.0;  // and of what it leaves
};

// The factor of every rank's part; nothing where a part is no multiple of the reference's.
std::vector<RankFactor> factors_of(const Match& match, const Values& reference) {
  std::vector<RankFactor> factors;
  for (const Shard& shard : match.candidate) {
    const Placement& placement = shard.record->placement;
    if (placement.partial_count != 1 || placement.dims.size() != reference.shape.size()) {
      return {};
    }
    const Values held = local_values(shard);
    const std::vector<double> right = values_at(reference, shard);
    const auto found = fit(std::span(&right, 1), held.data);
    if (!found) {
      continue;  // nothing there
    }
    const double factor = found->coefficients[0];
    if (std::abs(factor) <= kSame) {
      return {};  // nothing was written there: no factor
    }
    const bool equal = std::abs(factor - 1.0) <= kSame;
    const double moved = std::abs(factor - 1.0) * Values{{}, right}.norm();
    if (!equal && found->residual > kLeft * moved) {
      return {};
    }
    factors.push_back({shard.rank, factor, found->deviations[0], equal, moved, found->residual});
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
      text += (text.empty() ? "rank " : "; rank ") + std::to_string(factor.rank) +
              " has a x the reference's, a = " +
              explain_factor(evidence, factor.value, factor.deviation);
    }
  }
  text += shown > kShown ? "; ..." : "";
  return equal.empty() ? text
                       : text + "; " + ranks_text(equal) + (equal.size() > 1 ? " have" : " has") +
                             " the reference's values";
}

bool is_judged_by_value(const Evidence& evidence) {
  return evidence.sides() != nullptr || evidence.finding().tier() == Tier::kT1;
}

bool any_wrong(const std::vector<RankFactor>& factors) {
  return std::any_of(factors.begin(), factors.end(), [](const auto& each) { return !each.equal; });
}

// The hypothesis that every wrong part is such a multiple.
Hypothesis of_parts(const Evidence& evidence,
                    const std::vector<RankFactor>& factors,
                    std::string sentence) {
  Hypothesis found{.signature = Signature::kWrongFactor, .sentence = std::move(sentence)};
  double left = 0.0;
  double moved = 0.0;
  for (const RankFactor& factor : factors) {
    if (factor.equal) {
      continue;
    }
    left += factor.residual * factor.residual;
    moved += factor.moved * factor.moved;
    const bool known =
        std::any_of(found.named.factors.begin(), found.named.factors.end(), [&](double other) {
          return std::abs(other - factor.value) <= kSame * std::abs(factor.value);
        });
    found.bits += known ? 1.0 : bits_of_factor(evidence, factor.value, factor.deviation);
    found.named.factors.push_back(factor.value);
    found.named.ranks.push_back(factor.rank);
  }
  found.error = std::sqrt(moved);
  found.residual = std::sqrt(left);
  return found;
}

}  // namespace

// A master or a parameter after the step shows by its first moment with which factor its gradient
// has entered the optimizer.
std::optional<Hypothesis> find_factor_of_moment(const Evidence& evidence) {
  TensorId id = evidence.finding().id;
  if ((id.kind != Kind::kMaster && id.kind != Kind::kParamNext) || !is_judged_by_value(evidence)) {
    return std::nullopt;
  }
  id.kind = Kind::kExpAvg;
  const Match* moment = evidence.find(id);
  const auto reference = moment == nullptr ? std::nullopt : evidence.reference(*moment);
  const auto factors = reference ? factors_of(*moment, *reference) : std::vector<RankFactor>();
  if (!any_wrong(factors)) {
    return std::nullopt;
  }
  return of_parts(evidence,
                  factors,
                  fmt::format("its gradient enters the optimizer with another factor, which {} "
                              "shows: {}. Check clipping, and the scale that is divided out",
                              to_string(id),
                              factors_text(evidence, factors)));
}

// Ranks run one program: where some copies are right, a factor explains the others only if it is a
// number of this run.
std::optional<Hypothesis> find_rank_factors(const Evidence& evidence) {
  const Kind kind = evidence.finding().id.kind;
  const auto reference = evidence.reference(evidence.match());
  if (!is_judged_by_value(evidence) || kind == Kind::kMaster || kind == Kind::kParamNext ||
      !reference || evidence.match().candidate.size() < 2) {
    return std::nullopt;
  }
  const auto factors = factors_of(evidence.match(), *reference);
  const bool known = std::all_of(factors.begin(), factors.end(), [&](const RankFactor& factor) {
    return factor.equal ||
           explain_factor(evidence, factor.value, factor.deviation).find('=') != std::string::npos;
  });
  const bool some_right = std::any_of(
      factors.begin(), factors.end(), [](const RankFactor& factor) { return factor.equal; });
  if (!any_wrong(factors) || (evidence.copies_differ() && some_right && !known)) {
    return std::nullopt;
  }
  return of_parts(evidence, factors, factors_text(evidence, factors));
}

std::optional<Hypothesis> find_row_factors(const Evidence& evidence) {
  constexpr std::int64_t kFewest = 8;
  const Sides* sides = evidence.sides();
  if (sides == nullptr || sides->reference.shape.size() < 2) {
    return std::nullopt;
  }
  const View last = around(sides->reference.shape, sides->reference.shape.size() - 1);
  if (last.size < kFewest || last.outer < kFewest) {
    return std::nullopt;
  }
  const auto width = static_cast<std::size_t>(last.size);
  double left = 0.0;
  std::vector<double> factors;
  for (std::size_t start = 0; start < sides->reference.data.size(); start += width) {
    const std::span r = std::span(sides->reference.data).subspan(start, width);
    const std::span c = std::span(sides->candidate.data).subspan(start, width);
    const double both = std::inner_product(r.begin(), r.end(), c.begin(), 0.0);
    const double squared = std::inner_product(r.begin(), r.end(), r.begin(), 0.0);
    factors.push_back(squared > 0.0 ? both / squared : 1.0);
    if (squared > 0.0 && std::abs(factors.back()) <= kSame) {
      return std::nullopt;  // nothing was written there
    }
    for (std::size_t i = 0; i < width; ++i) {
      left += std::pow(c[i] - factors.back() * r[i], 2);
    }
  }
  const auto moved = std::count_if(
      factors.begin(), factors.end(), [](double factor) { return std::abs(factor - 1.0) > kSame; });
  const auto [least, most] = std::minmax_element(factors.begin(), factors.end());
  // One factor for all rows is not this hypothesis.
  if (2 * moved < last.outer || *most - *least <= kSame ||
      std::sqrt(left) > evidence.tolerance(sides->error)) {
    return std::nullopt;
  }
  return Hypothesis{
      .signature = Signature::kWrongFactor,
      .sentence =
          fmt::format("every row of the candidate is a multiple of the reference's row, by factors "
                      "from {} to {}: weights or a norm per row are not normalised, or differ",
                      factor_text(*least),
                      factor_text(*most)),
      .named = {.factors = {*least, *most}},
      .error = sides->error,
      .residual = std::sqrt(left),
      .coefficients = static_cast<double>(factors.size())};
}

}  // namespace ttrace
