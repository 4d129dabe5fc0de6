#include "analysis/causes/common/factors.h"
#include "analysis/causes/common/slices.h"
#include "analysis/causes/signatures.h"
#include "analysis/findings/wording.h"

#include <ttrace/element_type.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>

namespace ttrace {
namespace {

std::vector<double> difference(const Sides& sides) {
  std::vector<double> d = sides.candidate.data;
  for (std::size_t i = 0; i < d.size(); ++i) {
    d[i] -= sides.reference.data[i];
  }
  return d;
}

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

Diagnosis bias_diagnosis(const std::string& what, double rest, double error) {
  return {Signature::kConstantBias,
          what + "; without that the error falls from " + short_number(error) + " to " +
              short_number(rest)};
}

// Rounding toward zero, or down, leaves errors of one sign below one unit in the last place.
std::optional<Diagnosis> truncated(const Sides& sides, ElementType type) {
  constexpr double kSigns = 6.0;  // standard deviations of a fair coin
  constexpr std::size_t kFewest = 32;
  double smaller = 0.0;
  double different = 0.0;
  for (std::size_t i = 0; i < sides.reference.data.size(); ++i) {
    const double r = sides.reference.data[i];
    const double c = sides.candidate.data[i];
    const double unit = 5.0 * rounding_error(type) * std::abs(r);
    if (std::abs(c - r) > unit) {
      return std::nullopt;
    }
    smaller += std::abs(c) < std::abs(r) ? 1.0 : 0.0;
    different += c != r ? 1.0 : 0.0;
  }
  const double z = different > 0.0 ? (2.0 * smaller - different) / std::sqrt(different) : 0.0;
  if (different < static_cast<double>(kFewest) || z < kSigns || smaller < 0.95 * different) {
    return std::nullopt;
  }
  return Diagnosis{Signature::kConstantBias,
                   "of " + std::to_string(static_cast<std::int64_t>(different)) +
                       " elements that differ " +
                       std::to_string(static_cast<std::int64_t>(smaller)) +
                       " are nearer to zero than the reference's (z = " + short_number(z) +
                       "), all by a few units in the last place: rounded toward zero instead of "
                       "to nearest"};
}

// A loss is the logarithm of a sum less one of its addends: log(n) too much in every token is a sum
// that counts n times.
std::optional<Diagnosis> repeated_in_logarithm(const Evidence& evidence, double mean, double rest) {
  const std::string axis =
      evidence.finding().id.kind == Kind::kLoss ? axis_of_size(evidence, std::exp(mean)) : "";
  if (axis.empty()) {
    return std::nullopt;
  }
  return Diagnosis{
      Signature::kRepeatedReduction,
      "every token's loss is " + factor_text(mean) + " = log(" +
          std::to_string(evidence.axis_size(axis)) +
          ") too large: the sum over the vocabulary, whose logarithm it is, was summed "
          "over " +
          axis + " twice; without that the error falls from " +
          short_number(evidence.sides()->error) + " to " + short_number(rest)};
}

}  // namespace

std::optional<Diagnosis> find_constant_bias(const Evidence& evidence) {
  constexpr std::int64_t kFewest = 8;
  const Sides* sides = evidence.sides();
  if (sides == nullptr || std::ssize(sides->reference.data) < kFewest ||
      !is_floating(evidence.match().reference.front().record->type)) {
    return std::nullopt;
  }
  const double tolerance = evidence.tolerance(sides->error);
  const std::vector<double> d = difference(*sides);
  const Rest all = without_means(d, 1, [](std::size_t) { return std::size_t{0}; });
  if (all.norm <= tolerance) {
    if (auto found = repeated_in_logarithm(evidence, all.means[0], all.norm)) {
      return found;
    }
    const auto count = static_cast<double>(d.size());
    const double deviation = all.norm / std::sqrt(count * (count - 1.0));
    return bias_diagnosis("candidate = reference + " + factor_text(all.means[0]) + " +- " +
                              short_number(deviation) + " in every element",
                          all.norm,
                          sides->error);
  }
  const std::vector<std::int64_t>& shape = sides->reference.shape;
  if (shape.size() > 1) {
    const View last = around(shape, shape.size() - 1);
    const auto columns = static_cast<std::size_t>(last.size);
    const Rest rows = without_means(
        d, static_cast<std::size_t>(last.outer), [columns](auto i) { return i / columns; });
    if (last.size >= kFewest && rows.norm <= tolerance) {
      return bias_diagnosis("candidate = reference + one number in every row, from " +
                                short_number(*std::ranges::min_element(rows.means)) + " to " +
                                short_number(*std::ranges::max_element(rows.means)) +
                                ": a mean that was not taken off, or off another row",
                            rows.norm,
                            sides->error);
    }
    const Rest same = without_means(d, columns, [columns](auto i) { return i % columns; });
    if (last.outer >= kFewest && same.norm <= tolerance) {
      return bias_diagnosis(
          "the same vector was added to every row: a bias too many, too few or wrong",
          same.norm,
          sides->error);
    }
  }
  return truncated(*sides, evidence.match().candidate.front().record->type);
}

}  // namespace ttrace
