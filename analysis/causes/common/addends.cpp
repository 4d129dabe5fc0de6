#include "analysis/causes/common/addends.h"

#include "analysis/causes/common/factors.h"
#include "analysis/causes/common/modules.h"
#include "analysis/findings/wording.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <set>

namespace ttrace {
namespace {

bool is_near(const Fit& fit, std::size_t addend, double meaning) {
  return std::abs(fit.coefficients[addend] - meaning) <=
         std::max(0.1, 3.0 * fit.deviations[addend]);
}

bool is_clear(const Fit& fit, std::size_t addends) {
  return std::all_of(fit.deviations.begin(),
                     fit.deviations.begin() + static_cast<std::ptrdiff_t>(addends),
                     [](double deviation) { return deviation < 0.15; });
}

std::string coefficient_text(double value) {
  return fmt::format("{:.3f}", std::abs(value) < 0.0005 ? 0.0 : value);
}

// "1.000, 0.000 (+- 0.002)"
std::string coefficients_text(const Fit& fit, std::size_t addends) {
  constexpr std::size_t kShown = 8;
  std::string text;
  double deviation = 0.0;
  for (std::size_t i = 0; i < addends; ++i) {
    if (i < kShown) {
      text += (i == 0 ? "" : ", ") + coefficient_text(fit.coefficients[i]);
    }
    deviation = std::max(deviation, fit.deviations[i]);
  }
  return text + (addends > kShown ? ", ..." : "") + " (+- " + short_number(deviation) + ")";
}

// "micro-batch 2 of ranks 0, 1"
std::string name_of(const Addend& addend) {
  const std::string ranks = ranks_text(addend.ranks);
  return addend.microbatch == kNoMicrobatch
             ? ranks
             : "micro-batch " + std::to_string(addend.microbatch) + " of " + ranks;
}

std::string fitted(std::span<const Addend> addends, const RankFit& rank) {
  constexpr std::size_t kNamed = 4;
  std::string names;
  for (std::size_t i = 0; i < std::min(addends.size(), kNamed); ++i) {
    names += (i == 0 ? "" : "; ") + name_of(addends[i]);
  }
  return "on rank " + std::to_string(rank.rank) + " it is " +
         coefficients_text(rank.fit, addends.size()) + " x the addends of " + names +
         (addends.size() > kNamed ? "; ..." : "");
}

// Whether rank and addend stand at the same place of an axis; an addend whose ranks lie on several
// is everywhere.
bool same_coordinate(const Evidence& evidence,
                     int rank,
                     const Addend& addend,
                     const std::string& axis) {
  const int first = evidence.layout(addend.ranks.front()).coordinate(axis);
  const bool spread = std::any_of(addend.ranks.begin(), addend.ranks.end(), [&](int other) {
    return evidence.layout(other).coordinate(axis) != first;
  });
  return spread || evidence.layout(rank).coordinate(axis) == first;
}

// Whether every rank has exactly the addends of those at its own place of `axes`.
bool has_own_only(const Evidence& evidence,
                  std::span<const Addend> addends,
                  std::span<const RankFit> ranks,
                  const std::vector<std::string>& axes) {
  bool any_missing = false;
  for (const RankFit& rank : ranks) {
    for (std::size_t i = 0; i < addends.size(); ++i) {
      const bool own = std::all_of(axes.begin(), axes.end(), [&](const std::string& axis) {
        return same_coordinate(evidence, rank.rank, addends[i], axis);
      });
      if (!is_near(rank.fit, i, own ? 1.0 : 0.0)) {
        return false;
      }
      any_missing = any_missing || !own;
    }
  }
  return any_missing;
}

// A hypothesis about the coefficients on all ranks.
Hypothesis about(std::span<const RankFit> ranks, Signature signature, std::string sentence) {
  Hypothesis found{.signature = signature, .sentence = std::move(sentence)};
  double left = 0.0;
  double error = 0.0;
  for (const RankFit& rank : ranks) {
    left += rank.fit.residual * rank.fit.residual;
    error += rank.error * rank.error;
    found.named.ranks.push_back(rank.rank);
  }
  found.residual = std::sqrt(left);
  found.error = std::max(std::sqrt(error), found.residual);
  return found;
}

std::optional<Hypothesis> missing_reduction(const Evidence& evidence,
                                            std::span<const Addend> addends,
                                            std::span<const RankFit> ranks) {
  const auto subsets = subsets_of(evidence.axes());
  for (const auto& chosen : subsets) {
    if (has_own_only(evidence, addends, ranks, chosen)) {
      Hypothesis found = about(ranks,
                               Signature::kMissingReduction,
                               fmt::format("the sum over {} is missing; every rank holds only its "
                                           "own addend: {}",
                                           and_text(chosen),
                                           fitted(addends, ranks.front())));
      found.named.axes = chosen;
      found.bits = bits_of_choice(static_cast<double>(subsets.size()));
      return found;
    }
  }
  return std::nullopt;
}

// The coefficient that all addends with (or without) a property have on all ranks.
template <class Chosen>
std::optional<double> common(std::span<const Addend> addends,
                             std::span<const RankFit> ranks,
                             const Chosen& chosen) {
  std::optional<double> value;
  for (const RankFit& rank : ranks) {
    for (std::size_t i = 0; i < addends.size(); ++i) {
      if (!chosen(addends[i])) {
        continue;
      }
      value = value.value_or(rank.fit.coefficients[i]);
      if (!is_near(rank.fit, i, *value)) {
        return std::nullopt;
      }
    }
  }
  return value;
}

double largest_deviation(std::span<const RankFit> ranks) {
  double largest = 0.0;
  for (const RankFit& rank : ranks) {
    for (const double deviation : rank.fit.deviations) {
      largest = std::max(largest, deviation);
    }
  }
  return largest;
}

std::optional<Hypothesis> missing_microbatches(const Evidence& evidence,
                                               std::span<const Addend> addends,
                                               std::span<const RankFit> ranks) {
  std::set<std::int64_t> missing;
  for (std::size_t i = 0; i < addends.size(); ++i) {
    const bool absent = std::all_of(
        ranks.begin(), ranks.end(), [i](const RankFit& rank) { return is_near(rank.fit, i, 0.0); });
    if (absent && addends[i].microbatch != kNoMicrobatch) {
      missing.insert(addends[i].microbatch);
    }
  }
  const auto is_missing = [&](const Addend& addend) { return missing.contains(addend.microbatch); };
  const auto absent = common(addends, ranks, is_missing);
  const auto others =
      common(addends, ranks, [&](const Addend& addend) { return !is_missing(addend); });
  if (missing.empty() || !absent || !others || std::abs(*absent) > 0.1 || *others < 0.1) {
    return std::nullopt;
  }
  Hypothesis found = about(ranks,
                           Signature::kMissingMicrobatch,
                           fmt::format("micro-batch{} {} {} not in the sum, the others have the "
                                       "factor {}; {}",
                                       missing.size() > 1 ? "es" : "",
                                       fmt::join(missing, ", "),
                                       missing.size() > 1 ? "are" : "is",
                                       explain_factor(evidence, *others, largest_deviation(ranks)),
                                       fitted(addends, ranks.front())));
  found.named.microbatches = {missing.begin(), missing.end()};
  found.named.factors = {*others};
  found.bits =
      static_cast<double>(missing.size()) * bits_of_choice(static_cast<double>(addends.size()));
  return found;
}

// The rank with the coefficient that is farthest from 1.
const RankFit& worst(std::span<const RankFit> ranks, std::size_t addends) {
  const auto distance = [addends](const RankFit& rank) {
    double largest = 0.0;
    for (std::size_t i = 0; i < addends; ++i) {
      largest = std::max(largest, std::abs(rank.fit.coefficients[i] - 1.0));
    }
    return largest;
  };
  return *std::max_element(
      ranks.begin(), ranks.end(), [&](const RankFit& left, const RankFit& right) {
        return distance(left) < distance(right);
      });
}

}  // namespace

std::optional<Hypothesis> read_coefficients(const Evidence& evidence,
                                            std::span<const Addend> addends,
                                            std::span<const RankFit> ranks) {
  const bool clear =
      !ranks.empty() && std::all_of(ranks.begin(), ranks.end(), [&](const auto& rank) {
        return is_clear(rank.fit, addends.size());
      });
  if (!clear) {
    return std::nullopt;
  }
  if (auto found = missing_reduction(evidence, addends, ranks)) {
    return found;
  }
  if (auto found = missing_microbatches(evidence, addends, ranks)) {
    return found;
  }
  if (const auto all = common(addends, ranks, [](const Addend&) { return true; })) {
    if (std::abs(*all - 1.0) <= 0.02) {
      return std::nullopt;  // nothing is wrong with this sum
    }
    const std::string axis = axis_of_size(evidence, *all);
    Hypothesis found =
        about(ranks,
              axis.empty() ? Signature::kWrongFactor : Signature::kRepeatedReduction,
              fmt::format("all addends have the coefficient {}{}",
                          explain_factor(evidence, *all, largest_deviation(ranks)),
                          axis.empty() ? "" : ": they were summed over " + axis + " twice"));
    found.named.axes = axes_in(evidence, *all);
    found.named.factors = {*all};
    // The factor, the choice between the tensor itself and its addends, and that of the axis: a
    // missing divisor makes the same factor and claims less.
    found.bits =
        bits_of_choice(2.0) + bits_of_factor(evidence, *all, largest_deviation(ranks)) +
        (axis.empty() ? 0.0 : bits_of_choice(2.0 * static_cast<double>(evidence.axes().size())));
    return found;
  }
  if (addends.size() == 1) {
    return std::nullopt;  // no sum: it is the ranks that differ
  }
  const RankFit& farthest = worst(ranks, addends.size());
  Hypothesis found =
      about(ranks,
            Signature::kWrongAddends,
            "not every addend of the sum has the coefficient 1: " + fitted(addends, farthest));
  const auto& all = farthest.fit.coefficients;
  found.named.factors.assign(all.begin(),
                             all.begin() + static_cast<std::ptrdiff_t>(addends.size()));
  found.coefficients = static_cast<double>(addends.size() * ranks.size());
  return found;
}

double error_of_sum(std::span<const std::vector<double>> columns, std::span<const double> target) {
  double squared = 0.0;
  for (std::size_t at = 0; at < target.size(); ++at) {
    double rest = target[at];
    for (const std::vector<double>& column : columns) {
      rest -= column[at];
    }
    squared += rest * rest;
  }
  return std::sqrt(squared);
}

}  // namespace ttrace
