// Something that was added: one number, one number per row, one vector for all rows, the module's
// bias; or less than one unit in the last place, always with one sign.
#include "analysis/causes/common/factors.h"
#include "analysis/causes/common/least_squares.h"
#include "analysis/causes/common/modules.h"
#include "analysis/causes/common/slices.h"
#include "analysis/causes/signatures.h"
#include "analysis/findings/wording.h"

#include <ttrace/element_type.h>

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace ttrace {
namespace {

// What is left of `d` once every slice of `view` has lost its mean.
struct Rest {
  double norm = 0.0;
  std::vector<double> means;
};

Rest without_means(const std::vector<double>& d, const SliceView& view) {
  Rest rest{0.0, std::vector<double>(static_cast<std::size_t>(view.size))};
  const auto mean_at = [&](std::size_t i) -> double& {
    return rest.means[static_cast<std::size_t>(view.slice_of(i))];
  };
  for (std::size_t i = 0; i < d.size(); ++i) {
    mean_at(i) += d[i] / static_cast<double>(view.slice_elements());
  }
  double squared = 0.0;
  for (std::size_t i = 0; i < d.size(); ++i) {
    squared += std::pow(d[i] - mean_at(i), 2);
  }
  rest.norm = std::sqrt(squared);
  return rest;
}

bool may_have_offset(const Evidence& evidence, const Sides& sides) {
  constexpr std::size_t kFewest = 8;
  return sides.size() >= kFewest && is_floating(evidence.match().reference.front().record->type);
}

Hypothesis offset(const Sides& sides, const std::string& what, const Rest& rest) {
  Hypothesis found = about(sides,
                           Signature::kConstantBias,
                           rest.norm,
                           what + "; without that " + fall_text(sides.error, rest.norm));
  found.coefficients = static_cast<double>(rest.means.size());
  return found;
}

// One number everywhere. In losses it may be the logarithm of an axis's size: a loss is the
// logarithm of a sum less one of its addends, so that log(n) too much is a sum that counts n times.
Hypothesis one_number(const Evidence& evidence, const Sides& sides, const Rest& all) {
  const double mean = all.means.front();
  const auto count = static_cast<double>(sides.size());
  const std::string axis =
      evidence.finding().id.kind == Kind::kLoss ? axis_of_size(evidence, std::exp(mean)) : "";
  if (axis.empty()) {
    Hypothesis found =
        offset(sides,
               fmt::format("candidate = reference + {} +- {} in every element",
                           factor_text(mean),
                           short_number(all.norm / std::sqrt(count * (count - 1.0)))),
               all);
    found.named.factors = {mean};
    return found;
  }
  Hypothesis found =
      offset(sides,
             fmt::format("every token's loss is {} = log({}) too large: the sum over the "
                         "vocabulary, whose logarithm it is, was summed over {} twice",
                         factor_text(mean),
                         evidence.axis_size(axis),
                         axis),
             all);
  found.signature = Signature::kRepeatedReduction;
  found.named = {.axes = {axis}, .factors = {std::exp(mean)}};
  return found;
}

// The bias was added another number of times than once.
Hypothesis repeated_bias(const Evidence& evidence, const Sides& sides, const Fit& fit) {
  const double times = fit.coefficients[0];
  const double deviation = fit.deviations[0];
  const std::string axis = axis_of_size(evidence, std::round(times) + 1.0);
  const bool missing = times < 0.0;
  Hypothesis found =
      about(sides,
            missing ? Signature::kConstantBias : Signature::kRepeatedBias,
            fit.residual,
            missing ? fmt::format("the module's bias is missing: candidate = reference - b x bias, "
                                  "b = {} +- {}",
                                  factor_text(-times),
                                  short_number(deviation))
                    : fmt::format("the candidate adds the bias {} times instead of once (+- {}){}",
                                  factor_text(times + 1.0),
                                  short_number(deviation),
                                  axis.empty() ? ""
                                               : fmt::format(": every rank of {0} adds it before "
                                                             "the sum over {0}",
                                                             axis)));
  if (!missing && !axis.empty()) {
    found.named.axes = {axis};
  }
  found.named.factors = {times + 1.0};
  found.bits = bits_of_choice(2.0);
  return found;
}

// d = a (r - bias): what the ranks sum up before the bias is added has the factor 1 + a.
Hypothesis repeated_sum(const Evidence& evidence, const Sides& sides, const Fit& fit) {
  const double factor = 1.0 + fit.coefficients[0];
  const std::string axis = axis_of_size(evidence, factor);
  Hypothesis found =
      about(sides,
            axis.empty() ? Signature::kWrongFactor : Signature::kRepeatedReduction,
            fit.residual,
            fmt::format("without its bias the candidate is a x the reference, a = {}{}",
                        explain_factor(evidence, factor, fit.deviations[0]),
                        axis.empty() ? "" : ": it was summed over " + axis + " twice"));
  found.named = {.axes = axes_in(evidence, factor), .factors = {factor}};
  found.bits = bits_of_choice(2.0) + bits_of_factor(evidence, factor, fit.deviations[0]);
  return found;
}

Hypotheses constant_bias(const Evidence& evidence, const Sides& sides) {
  constexpr std::int64_t kFewest = 8;
  const std::vector<double> d = sides.difference();
  const Rest all = without_means(d, {1, 1, std::ssize(d)});
  Hypotheses found;
  if (evidence.explains(all.norm)) {
    found.push_back(one_number(evidence, sides, all));
  }
  const SliceView columns = view_along(sides.shape(), sides.shape().size() - 1);
  const Rest rows = without_means(d, {1, columns.outer, columns.size});
  if (columns.outer > 1 && columns.size >= kFewest && evidence.explains(rows.norm)) {
    found.push_back(
        offset(sides,
               fmt::format(
                   "candidate = reference + one number in every row, from {} to {}: a mean was not "
                   "subtracted, or was subtracted from another row",
                   short_number(std::ranges::min(rows.means)),
                   short_number(std::ranges::max(rows.means))),
               rows));
  }
  const Rest same = without_means(d, columns);
  if (columns.outer >= kFewest && evidence.explains(same.norm)) {
    found.push_back(offset(sides,
                           "the same vector was added to every row: a bias is added too often, is "
                           "missing, or is wrong",
                           same));
  }
  return found;
}

Hypotheses multiple_of_bias(const Evidence& evidence, const Sides& sides) {
  const auto bias = bias_of(evidence, sides.reference, WhichRun::kReference);
  if (!bias) {
    return {};
  }
  std::array columns = {std::vector<double>(sides.size()), sides.reference.data};
  for (std::size_t i = 0; i < sides.size(); ++i) {
    columns[0][i] = bias->data[i % bias->data.size()];
  }
  const std::vector<double> d = sides.difference();
  Hypotheses found;
  if (const auto alone = fit(std::span(columns).first(1), d);
      alone && evidence.explains(alone->residual)) {
    const double times = alone->coefficients[0];
    const double whole = std::round(times);
    if (whole != 0.0 && whole >= -1.0 &&
        std::abs(times - whole) <= std::max(0.05, 3.0 * alone->deviations[0])) {
      found.push_back(repeated_bias(evidence, sides, *alone));
    }
  }
  std::swap(columns[0], columns[1]);
  if (const auto both = fit(columns, d); both && evidence.explains(both->residual)) {
    const double a = both->coefficients[0];
    if (std::abs(both->coefficients[1] + a) <=
        std::max(0.05 * std::abs(a), 3.0 * both->deviations[1])) {
      found.push_back(repeated_sum(evidence, sides, *both));
    }
  }
  return found;
}

// Rounding toward zero, or down, leaves errors of one sign below one unit in the last place. Their
// mean is half of their norm.
Hypotheses truncation(const Evidence& evidence, const Sides& sides) {
  constexpr double kSigns = 6.0;  // standard deviations of a fair coin
  constexpr double kFewest = 32.0;
  if (evidence.finding().claim() != nullptr) {
    return {};  // some ranks' addends are multiples; one below 1 makes the sum smaller as well
  }
  const double unit = 5.0 * rounding_error(evidence.match().candidate.front().record->type);
  double smaller = 0.0;
  double different = 0.0;
  for (std::size_t i = 0; i < sides.size(); ++i) {
    const double r = sides.reference.data[i];
    const double c = sides.candidate.data[i];
    if (std::abs(c - r) > unit * std::abs(r)) {
      return {};
    }
    smaller += std::abs(c) < std::abs(r) ? 1.0 : 0.0;
    different += c != r ? 1.0 : 0.0;
  }
  const double z = different > 0.0 ? (2.0 * smaller - different) / std::sqrt(different) : 0.0;
  if (different < kFewest || z < kSigns || smaller < 0.95 * different) {
    return {};
  }
  return {about(sides,
                Signature::kConstantBias,
                0.5 * sides.error,
                fmt::format("{:.0f} of the {:.0f} elements that differ are nearer to zero than the "
                            "reference's (z = {}), all by a few units in the last place: the "
                            "candidate rounds toward zero instead of to nearest",
                            smaller,
                            different,
                            short_number(z)))};
}

}  // namespace

Hypotheses find_offset(const Evidence& evidence, const Sides& sides) {
  Hypotheses found = multiple_of_bias(evidence, sides);
  if (may_have_offset(evidence, sides)) {
    append(found, constant_bias(evidence, sides));
    append(found, truncation(evidence, sides));
  }
  return found;
}

}  // namespace ttrace
