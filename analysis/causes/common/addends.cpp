#include "analysis/causes/common/addends.h"

#include "analysis/causes/common/factors.h"
#include "analysis/findings/wording.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

namespace ttrace {
namespace {

constexpr double kShownAsZero = 0.0005;  // less, of a coefficient

bool is_near(const Fit& fit, std::size_t addend, double meaning) {
  return std::abs(fit.coefficients[addend] - meaning) <=
         std::max(0.1, 3.0 * fit.deviations[addend]);
}

// Whether nothing of an addend is there. A micro-batch that somebody clips is small, but not
// absent.
bool is_absent(const Fit& fit, std::size_t addend) {
  return is_near(fit, addend, 0.0) && std::abs(fit.coefficients[addend]) <=
                                          std::max(kShownAsZero, 10.0 * fit.deviations[addend]);
}

// "rank 3", "ranks 0 and 2", "ranks 0-3 and 6"
std::string whose(const std::vector<int>& ranks) {
  std::string text = ranks_text(ranks);
  if (const std::size_t comma = text.rfind(", "); comma != std::string::npos) {
    text.replace(comma, 1, " and");
  }
  return text;
}

// "rank 0 holds 1.000 x the addend of ranks 0 and 2, and 0.000 x that of ranks 1 and 3 (+- 0.002
// each)"
std::string fitted(std::span<const Addend> addends, const RankFit& rank) {
  constexpr std::size_t kShown = 6;
  const std::size_t shown = addends.size() <= kShown ? addends.size() : kShown - 1;
  std::string text = fmt::format("rank {} holds ", rank.rank);
  for (std::size_t i = 0; i < shown; ++i) {
    const double value = rank.fit.coefficients[i];
    const Addend& addend = addends[i];
    text += fmt::format("{}{:.3f} x {} of {}{}",
                        i == 0                    ? ""
                        : i + 1 == addends.size() ? ", and "
                                                  : ", ",
                        std::abs(value) < kShownAsZero ? 0.0 : value,
                        i == 0 ? "the addend" : "that",
                        addend.microbatch == kNoMicrobatch
                            ? ""
                            : fmt::format("micro-batch {} of ", addend.microbatch),
                        whose(addend.ranks));
  }
  if (shown < addends.size()) {
    text += fmt::format(", and {} more", addends.size() - shown);
  }
  return fmt::format("{} (+- {}{})",
                     text,
                     short_number(std::ranges::max(rank.fit.deviations)),
                     addends.size() > 1 ? " each" : "");
}

// Whether rank and addend stand at the same place of all axes; an addend whose ranks lie on several
// places of an axis is everywhere.
bool is_own(const Evidence& evidence,
            int rank,
            const Addend& addend,
            const std::vector<std::string>& axes) {
  return std::ranges::all_of(axes, [&](const std::string& axis) {
    const auto place = [&](int of) { return evidence.layout(of).coordinate(axis); };
    const int first = place(addend.ranks.front());
    return place(rank) == first ||
           std::ranges::any_of(addend.ranks, [&](int other) { return place(other) != first; });
  });
}

// Whether every rank has exactly the addends of those at its own place of `axes`.
bool has_own_only(const Evidence& evidence,
                  std::span<const Addend> addends,
                  std::span<const RankFit> ranks,
                  const std::vector<std::string>& axes) {
  bool any_missing = false;
  for (const RankFit& rank : ranks) {
    for (std::size_t i = 0; i < addends.size(); ++i) {
      const bool own = is_own(evidence, rank.rank, addends[i], axes);
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
  Hypothesis found{.signature = signature, .sentence = std::move(sentence), .error = 0.0};
  for (const RankFit& rank : ranks) {
    found.residual = std::hypot(found.residual, rank.fit.residual);
    found.error = std::hypot(found.error, rank.error);
    found.named.ranks.push_back(rank.rank);
  }
  found.error = std::max(found.error, found.residual);
  return found;
}

std::optional<Hypothesis> missing_reduction(const Evidence& evidence,
                                            std::span<const Addend> addends,
                                            std::span<const RankFit> ranks) {
  const auto subsets = subsets_of(evidence.axes());
  const auto chosen = std::ranges::find_if(
      subsets, [&](const auto& axes) { return has_own_only(evidence, addends, ranks, axes); });
  if (chosen == subsets.end()) {
    return std::nullopt;
  }
  Hypothesis found =
      about(ranks,
            Signature::kMissingReduction,
            fmt::format("the sum over {} is missing; every rank holds only its own addend: {}",
                        and_text(*chosen),
                        fitted(addends, ranks.front())));
  found.named.axes = *chosen;
  found.bits = bits_of_choice(static_cast<double>(subsets.size()));
  return found;
}

// The coefficient that all addends with a property have on all ranks.
template <class Chosen>
std::optional<double> common(std::span<const Addend> addends,
                             std::span<const RankFit> ranks,
                             const Chosen& is_chosen) {
  std::optional<double> value;
  for (const RankFit& rank : ranks) {
    for (std::size_t i = 0; i < addends.size(); ++i) {
      if (!is_chosen(addends[i])) {
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
    largest = std::max(largest, std::ranges::max(rank.fit.deviations));
  }
  return largest;
}

std::optional<Hypothesis> missing_microbatches(const Evidence& evidence,
                                               std::span<const Addend> addends,
                                               std::span<const RankFit> ranks) {
  std::set<std::int64_t> missing;
  for (std::size_t i = 0; i < addends.size(); ++i) {
    if (addends[i].microbatch != kNoMicrobatch &&
        std::ranges::all_of(ranks, [i](const auto& rank) { return is_absent(rank.fit, i); })) {
      missing.insert(addends[i].microbatch);
    }
  }
  const auto is_missing = [&](const Addend& addend) { return missing.contains(addend.microbatch); };
  const auto absent = common(addends, ranks, is_missing);
  const auto others = common(addends, ranks, std::not_fn(is_missing));
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

// All addends have the same coefficient, and it is not 1.
Hypothesis repeated(const Evidence& evidence, std::span<const RankFit> ranks, double coefficient) {
  const double deviation = largest_deviation(ranks);
  const std::string axis = axis_of_size(evidence, coefficient);
  Hypothesis found =
      about(ranks,
            axis.empty() ? Signature::kWrongFactor : Signature::kRepeatedReduction,
            fmt::format("all addends have the coefficient {}{}",
                        explain_factor(evidence, coefficient, deviation),
                        axis.empty() ? "" : ": they were summed over " + axis + " twice"));
  found.named.axes = axes_in(evidence, coefficient);
  found.named.factors = {coefficient};
  // The factor, the choice between the tensor itself and its addends, and that of the axis: a
  // missing divisor makes the same factor and claims less.
  found.bits =
      bits_of_choice(2.0) + bits_of_factor(evidence, coefficient, deviation) +
      (axis.empty() ? 0.0 : bits_of_choice(2.0 * static_cast<double>(evidence.axes().size())));
  return found;
}

double farthest_from_one(const RankFit& rank) {
  double largest = 0.0;
  for (const double coefficient : rank.fit.coefficients) {
    largest = std::max(largest, std::abs(coefficient - 1.0));
  }
  return largest;
}

// target less the sum of the columns
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

}  // namespace

std::optional<RankFit> fit_rank(int rank,
                                std::span<const std::vector<double>> columns,
                                std::size_t addends,
                                std::span<const double> held) {
  auto found = fit(columns, held);
  if (!found || !reproduces(found->residual, norm(held))) {
    return std::nullopt;
  }
  found->coefficients.resize(addends);
  found->deviations.resize(addends);
  return RankFit{rank, *std::move(found), error_of_sum(columns, held)};
}

Hypotheses read_coefficients(const Evidence& evidence,
                             std::span<const Addend> addends,
                             std::span<const RankFit> ranks) {
  constexpr double kUnclear = 0.15;  // deviation of a coefficient
  if (ranks.empty() || largest_deviation(ranks) >= kUnclear) {
    return {};
  }
  // Readings of one fit, the simplest first. Coefficients that are left free always fit as well.
  if (auto found = missing_reduction(evidence, addends, ranks)) {
    return {*std::move(found)};
  }
  if (auto found = missing_microbatches(evidence, addends, ranks)) {
    return {*std::move(found)};
  }
  if (const auto all = common(addends, ranks, [](const Addend&) { return true; })) {
    const bool is_right = std::abs(*all - 1.0) <= 0.02;
    return is_right ? Hypotheses() : Hypotheses{repeated(evidence, ranks, *all)};
  }
  if (addends.size() == 1) {
    return {};  // no sum: it is the ranks that differ
  }
  const RankFit& worst = *std::ranges::max_element(ranks, {}, farthest_from_one);
  Hypothesis found =
      about(ranks,
            Signature::kWrongAddends,
            "not every addend of the sum has the coefficient 1: " + fitted(addends, worst));
  found.named.factors = worst.fit.coefficients;
  found.coefficients = static_cast<double>(addends.size() * ranks.size());
  return {std::move(found)};
}

bool is_sum_of(std::span<const std::vector<double>> columns, std::span<const double> target) {
  return reproduces(error_of_sum(columns, target), norm(target));
}

std::optional<Hypothesis> read_extra_addends(std::span<const ExtraAddend> addends,
                                             std::span<const double> difference,
                                             double allowed) {
  std::vector<std::vector<double>> columns;
  for (const ExtraAddend& addend : addends) {
    columns.push_back(addend.values);
  }
  const auto found = fit(columns, difference);
  if (!found || found->residual > allowed) {
    return std::nullopt;
  }
  std::string sentence = "candidate = reference +";
  Named named;
  for (std::size_t i = 0; i < addends.size(); ++i) {
    const double a = found->coefficients[i];
    const double deviation = found->deviations[i];
    const Meaning meaning = addends[i].meaning(a, deviation);
    sentence += fmt::format("{} a x {}, a = {} +- {}{}",
                            i == 0 ? "" : ", +",
                            addends[i].name,
                            factor_text(a),
                            short_number(deviation),
                            meaning.text);
    const std::vector<double>& counts = meaning.named.factors;
    named.factors.push_back(counts.empty() ? a : counts.front());
    named.axes = meaning.named.axes;
  }
  return Hypothesis{.signature = Signature::kWrongAddends,
                    .sentence = std::move(sentence),
                    .named = std::move(named),
                    .error = norm(difference),
                    .residual = found->residual,
                    .coefficients = static_cast<double>(addends.size())};
}

}  // namespace ttrace
