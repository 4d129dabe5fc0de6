#include "analysis/causes/common/factors.h"
#include "analysis/causes/common/slices.h"
#include "analysis/causes/signatures.h"
#include "analysis/findings/wording.h"

#include <ttrace/element_type.h>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>

namespace ttrace {
namespace {

// What is left of `d` once every group `i / inner % size`, or i / (inner * size), lost its mean.
struct Rest {
  double norm = 0.0;
  std::vector<double> means;
};

template <class Group>
Rest without_means(const std::vector<double>& d, std::size_t groups, const Group& group_of) {
  std::vector<double> sums(groups);
  std::vector<double> counts(groups);
  for (std::size_t i = 0; i < d.size(); ++i) {
    sums[group_of(i)] += d[i];
    counts[group_of(i)] += 1.0;
  }
  Rest rest;
  for (std::size_t group = 0; group < groups; ++group) {
    rest.means.push_back(sums[group] / counts[group]);
  }
  double squared = 0.0;
  for (std::size_t i = 0; i < d.size(); ++i) {
    const double left = d[i] - rest.means[group_of(i)];
    squared += left * left;
  }
  rest.norm = std::sqrt(squared);
  return rest;
}

Hypothesis offset(const Evidence& evidence, const std::string& what, const Rest& rest) {
  const double error = evidence.sides()->error;
  return {.signature = Signature::kConstantBias,
          .sentence = fmt::format("{}; without that the error falls from {} to {}",
                                  what,
                                  short_number(error),
                                  short_number(rest.norm)),
          .error = error,
          .residual = rest.norm,
          .coefficients = static_cast<double>(rest.means.size())};
}

bool may_have_offset(const Evidence& evidence) {
  constexpr std::int64_t kFewest = 8;
  const Sides* sides = evidence.sides();
  return sides != nullptr && std::ssize(sides->reference.data) >= kFewest &&
         is_floating(evidence.match().reference.front().record->type);
}

// One number everywhere. In losses it may be the logarithm of an axis's size: a loss is the
// logarithm of a sum less one of its addends, so that log(n) too much is a sum that counts n times.
std::optional<Hypothesis> one_number(const Evidence& evidence, const std::vector<double>& d) {
  const Rest all = without_means(d, 1, [](std::size_t) { return std::size_t{0}; });
  if (all.norm > evidence.tolerance(evidence.sides()->error)) {
    return std::nullopt;
  }
  const double mean = all.means.front();
  const std::string axis =
      evidence.finding().id.kind == Kind::kLoss ? axis_of_size(evidence, std::exp(mean)) : "";
  const auto count = static_cast<double>(d.size());
  Hypothesis found = offset(
      evidence,
      axis.empty() ? fmt::format("candidate = reference + {} +- {} in every element",
                                 factor_text(mean),
                                 short_number(all.norm / std::sqrt(count * (count - 1.0))))
                   : fmt::format("every token's loss is {} = log({}) too large: the sum over the "
                                 "vocabulary, whose logarithm it is, was summed over {} twice",
                                 factor_text(mean),
                                 evidence.axis_size(axis),
                                 axis),
      all);
  found.named.factors = {mean};
  if (!axis.empty()) {
    found.signature = Signature::kRepeatedReduction;
    found.named.axes = {axis};
    found.named.factors = {std::exp(mean)};
  }
  return found;
}

}  // namespace

std::optional<Hypothesis> find_constant_bias(const Evidence& evidence) {
  constexpr std::int64_t kFewest = 8;
  if (!may_have_offset(evidence)) {
    return std::nullopt;
  }
  const Sides& sides = *evidence.sides();
  const double tolerance = evidence.tolerance(sides.error);
  const std::vector<double> d = sides.difference();
  if (auto found = one_number(evidence, d)) {
    return found;
  }
  const std::vector<std::int64_t>& shape = sides.reference.shape;
  if (shape.size() < 2) {
    return std::nullopt;
  }
  const View last = around(shape, shape.size() - 1);
  const auto columns = static_cast<std::size_t>(last.size);
  const Rest rows = without_means(
      d, static_cast<std::size_t>(last.outer), [columns](auto i) { return i / columns; });
  if (last.size >= kFewest && rows.norm <= tolerance) {
    return offset(evidence,
                  fmt::format("candidate = reference + one number in every row, from {} to {}: a "
                              "mean was not subtracted, or was subtracted from another row",
                              short_number(*std::ranges::min_element(rows.means)),
                              short_number(*std::ranges::max_element(rows.means))),
                  rows);
  }
  const Rest same = without_means(d, columns, [columns](auto i) { return i % columns; });
  if (last.outer >= kFewest && same.norm <= tolerance) {
    return offset(evidence,
                  "the same vector was added to every row: a bias is added too often, is missing, "
                  "or is wrong",
                  same);
  }
  return std::nullopt;
}

// Rounding toward zero, or down, leaves errors of one sign below one unit in the last place. Their
// mean is half of their norm.
std::optional<Hypothesis> find_truncation(const Evidence& evidence) {
  constexpr double kSigns = 6.0;  // standard deviations of a fair coin
  constexpr double kFewest = 32.0;
  if (!may_have_offset(evidence)) {
    return std::nullopt;
  }
  const Sides& sides = *evidence.sides();
  const double unit = 5.0 * rounding_error(evidence.match().candidate.front().record->type);
  double smaller = 0.0;
  double different = 0.0;
  for (std::size_t i = 0; i < sides.reference.data.size(); ++i) {
    const double r = sides.reference.data[i];
    const double c = sides.candidate.data[i];
    if (std::abs(c - r) > unit * std::abs(r)) {
      return std::nullopt;
    }
    smaller += std::abs(c) < std::abs(r) ? 1.0 : 0.0;
    different += c != r ? 1.0 : 0.0;
  }
  const double z = different > 0.0 ? (2.0 * smaller - different) / std::sqrt(different) : 0.0;
  if (different < kFewest || z < kSigns || smaller < 0.95 * different) {
    return std::nullopt;
  }
  return Hypothesis{
      .signature = Signature::kConstantBias,
      .sentence = fmt::format(
          "{:.0f} of the {:.0f} elements that differ are nearer to zero than the reference's "
          "(z = {}), all by a few units in the last place: the candidate rounds toward zero "
          "instead of to nearest",
          smaller,
          different,
          short_number(z)),
      .error = sides.error,
      .residual = 0.5 * sides.error};
}

}  // namespace ttrace
