// Factors that are not one for the whole tensor: another one on every rank that holds a part, or
// one for every row. A parameter after the step is judged through its first moment, which carries
// the factor of its gradient where the update itself hides it.
#include "analysis/causes/common/factors.h"
#include "analysis/causes/common/least_squares.h"
#include "analysis/causes/common/slices.h"
#include "analysis/causes/signatures.h"
#include "analysis/findings/wording.h"

#include <algorithm>
#include <cmath>
#include <limits>
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
  bool equal = true;  // to the reference, as far as a factor is concerned
};

// Where all elements are nearly equal a number added to them looks like a factor.
bool is_offset(const std::vector<double>& reference,
               const std::vector<double>& held,
               const Fit& factor) {
  std::vector<double> added = held;
  for (std::size_t i = 0; i < added.size(); ++i) {
    added[i] -= reference[i];
  }
  const std::vector<double> ones(added.size(), 1.0);
  const auto offset = fit(std::span(&ones, 1), added);
  return offset && offset->residual < 0.5 * factor.residual;
}

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
    if (!equal && (found->residual > kLeft * moved || is_offset(right, held.data, *found))) {
      return {};
    }
    factors.push_back({shard.rank, factor, found->deviations[0], equal});
  }
  return factors;
}

// "rank 1 has a x the reference's, a = 4.533 +- 1e-05; ranks 0, 2 have it as it is"
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
  return equal.empty() ? text : text + "; " + ranks_text(equal) + " as it is";
}

// One factor of the whole is find_factor_or_bias's to tell.
bool all_alike(const std::vector<RankFactor>& factors) {
  return std::all_of(factors.begin(), factors.end(), [&](const RankFactor& each) {
    return std::abs(each.value - factors.front().value) <= kSame * std::abs(each.value);
  });
}

bool any_wrong(const std::vector<RankFactor>& factors) {
  return std::any_of(factors.begin(), factors.end(), [](const auto& each) { return !each.equal; });
}

std::optional<Diagnosis> in_moment(const Evidence& evidence) {
  TensorId id = evidence.finding().id;
  id.kind = Kind::kExpAvg;
  const Match* moment = evidence.find(id);
  const auto reference = moment == nullptr ? std::nullopt : evidence.reference(*moment);
  if (!reference) {
    return std::nullopt;
  }
  const auto factors = factors_of(*moment, *reference);
  if (!any_wrong(factors)) {
    return std::nullopt;
  }
  return Diagnosis{Signature::kWrongFactor,
                   "its gradient enters the optimizer with another factor, which " + to_string(id) +
                       " shows: " + factors_text(evidence, factors) +
                       ": clipping, or a scale that is taken off"};
}

std::optional<Diagnosis> by_rank(const Evidence& evidence) {
  const auto reference = evidence.reference(evidence.match());
  if (!reference || evidence.match().candidate.size() < 2) {
    return std::nullopt;
  }
  const auto factors = factors_of(evidence.match(), *reference);
  const auto known = [&](const RankFactor& factor) {
    return factor.equal ||
           explain_factor(evidence, factor.value, factor.deviation).find('=') != std::string::npos;
  };
  // Copies that differ by a number without meaning are told as copies that differ.
  const bool copies = evidence.copies_differ();
  if (!any_wrong(factors) || all_alike(factors) ||
      (copies && !std::all_of(factors.begin(), factors.end(), known))) {
    return std::nullopt;
  }
  return Diagnosis{Signature::kWrongFactor, factors_text(evidence, factors)};
}

}  // namespace

std::optional<Diagnosis> find_rank_factors(const Evidence& evidence) {
  if (evidence.sides() == nullptr && evidence.finding().tier() != Tier::kT1) {
    return std::nullopt;
  }
  const Kind kind = evidence.finding().id.kind;
  if (kind == Kind::kMaster || kind == Kind::kParamNext) {
    return in_moment(evidence);
  }
  return by_rank(evidence);
}

std::optional<Diagnosis> find_row_factors(const Evidence& evidence) {
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
  double least = std::numeric_limits<double>::infinity();
  double most = -least;
  std::int64_t moved = 0;
  for (std::size_t start = 0; start < sides->reference.data.size(); start += width) {
    const std::span r = std::span(sides->reference.data).subspan(start, width);
    const std::span c = std::span(sides->candidate.data).subspan(start, width);
    double both = 0.0;
    double squared = 0.0;
    for (std::size_t i = 0; i < width; ++i) {
      both += r[i] * c[i];
      squared += r[i] * r[i];
    }
    const double factor = squared > 0.0 ? both / squared : 1.0;
    if (squared > 0.0 && std::abs(factor) <= kSame) {
      return std::nullopt;  // nothing was written there
    }
    moved += std::abs(factor - 1.0) > kSame ? 1 : 0;
    least = std::min(least, factor);
    most = std::max(most, factor);
    for (std::size_t i = 0; i < width; ++i) {
      left += std::pow(c[i] - factor * r[i], 2);
    }
  }
  // A few rows are told as such, with their tokens; one factor of all is find_factor_or_bias's; and
  // a candidate near zero is near a small multiple of everything.
  const double rest = std::sqrt(left);
  if (2 * moved < last.outer || most - least <= kSame || rest > 0.5 * sides->candidate.norm() ||
      rest > evidence.tolerance(sides->error)) {
    return std::nullopt;
  }
  return Diagnosis{Signature::kWrongFactor,
                   "every row of the candidate is a multiple of the reference's, by factors from " +
                       factor_text(least) + " to " + factor_text(most) +
                       ": weights or a norm per row that are not normalised, or not alike"};
}

}  // namespace ttrace
