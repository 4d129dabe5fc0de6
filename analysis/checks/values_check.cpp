#include "analysis/checks/values_check.h"

#include "analysis/findings/wording.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <string>
#include <utility>

namespace ttrace {
namespace {

// NaN, Inf and -Inf are three values; everything finite is one.
int finiteness(double value) {
  if (std::isfinite(value)) {
    return 0;
  }
  return std::isnan(value) ? 1 : (value > 0 ? 2 : 3);
}

// Calls use(reference, candidate, position) for the elements that are one of these on one side and
// another one on the other, in ascending order.
template <class Use>
void for_each_unlike(const TensorPair& pair, Use&& use) {
  for_each_block(pair, [&](auto reference, auto candidate, std::int64_t start) {
    for (std::size_t i = 0; i < reference.size(); ++i) {
      if (finiteness(reference[i]) != finiteness(candidate[i])) {
        use(reference[i], candidate[i], start + static_cast<std::int64_t>(i));
      }
    }
  });
}

// Empty if both sides have them at the same places.
std::string nonfinite_difference(const TensorPair& pair) {
  std::int64_t candidate_only = 0;
  std::int64_t reference_only = 0;
  std::int64_t unlike = 0;  // non-finite on both sides, but not the same
  std::int64_t first = -1;
  for_each_unlike(pair, [&](double reference, double candidate, std::int64_t position) {
    first = first < 0 ? position : first;
    ++(std::isfinite(reference)   ? candidate_only
       : std::isfinite(candidate) ? reference_only
                                  : unlike);
  });
  if (first < 0) {
    return "";
  }
  std::string sentence;
  const auto append = [&sentence](std::int64_t elements, const std::string& what) {
    if (elements > 0) {
      sentence += fmt::format("{}{} {} {}",
                              sentence.empty() ? "" : ", ",
                              counted(elements, "element"),
                              elements == 1 ? "is" : "are",
                              what);
    }
  };
  append(candidate_only, "NaN or Inf where the reference is finite");
  append(reference_only, "finite where the reference is NaN or Inf");
  append(unlike, "NaN or Inf, but not of the reference's kind");
  return fmt::format("{}; the first is at {}", sentence, index_text(unravel(first, pair.shape)));
}

// The smallest magnitude of a shard's values that overflows; Inf of types other than F16, whose
// range no sound value comes near.
double overflow_of(const Shard& shard) {
  const ElementType type = shard.record->type;
  return type == ElementType::kF16 ? format_of(type).overflow() / shard.record->placement.scale
                                   : std::numeric_limits<double>::infinity();
}

double error_with_overflows(const TensorPair& pair, double error, const Match& match) {
  const double of_reference = overflow_of(match.reference.front());
  const double of_candidate = overflow_of(match.candidate.front());
  const auto distance = [](double infinite, double finite, double overflow) {
    return std::isinf(infinite) && std::isfinite(finite)
               ? std::max(0.0, overflow - std::copysign(finite, infinite * finite))
               : std::numeric_limits<double>::infinity();
  };
  double squared = error * error;
  for_each_unlike(pair, [&](double reference, double candidate, std::int64_t /*position*/) {
    const double d = std::isfinite(reference) ? distance(candidate, reference, of_candidate)
                                              : distance(reference, candidate, of_reference);
    squared += d * d;
  });
  return std::sqrt(squared);
}

// ||c - alpha r||: d = (alpha - 1) r + e with e orthogonal to r, so nothing cancels but what is the
// factor's share of ||d||.
double error_beside_factor(const Comparison& comparison) {
  const double share = (comparison.factor - 1.0) * comparison.reference_norm;
  return std::sqrt(std::max(0.0, comparison.error * comparison.error - share * share));
}

// Of a tensor that is beyond its bound already: this words the finding, and decides no verdict.
bool is_explained_by_factor(const Comparison& comparison, double bound) {
  // Of the error. Noise of BF16 leaves between 0.5 and 1 % of it beside a factor of 2; 5 % is all
  // but 1/400 of the squared error.
  constexpr double kSmallShare = 0.05;
  if (!std::isfinite(comparison.factor) || comparison.elements < 2) {
    return false;
  }
  const double rest = error_beside_factor(comparison);
  return rest <= bound || rest <= kSmallShare * comparison.error;
}

std::string differing(const Comparison& comparison) {
  if (comparison.is_estimate) {
    return "its digest is another one";
  }
  return fmt::format(
      "{} of {} differ", comparison.different, counted(comparison.elements, "element"));
}

// "error 0.5 of the reference's norm, bound 0.0115"
std::string size_of_error(const Comparison& comparison, double bound) {
  if (comparison.reference_norm == 0.0) {
    return fmt::format("error {} where the reference is zero, bound {}",
                       short_number(comparison.error),
                       short_number(bound));
  }
  return fmt::format("error {} of the reference's norm, bound {}",
                     short_number(comparison.relative_error),
                     short_number(bound / comparison.reference_norm));
}

// The sentence says that elements are unequal where equality was demanded, that a factor explains
// the error (candidate = alpha x reference), or else how large the error is.
void describe(const Comparison& comparison, const Bound& bound, double ratio, Check& check) {
  const std::string size = size_of_error(comparison, bound.value);
  if (bound.value == 0.0 && bound.origin != BoundOrigin::kClassDefault) {
    check.narrower = Symptom::kNotEqual;
    check.sentence =
        fmt::format("{}, but {}; {}",
                    differing(comparison),
                    bound.origin == BoundOrigin::kExact ? "all must be equal"
                                                        : "the reference was " + bound.source,
                    size);
    return;
  }
  const std::string times =
      bound.value == 0.0
          ? "it differs from a reference that is zero"
          : fmt::format("it differs {}x as much as round-off explains", short_number(ratio));
  if (is_explained_by_factor(comparison, bound.value)) {
    check.narrower = Symptom::kFactor;
    check.sentence =
        fmt::format("{}; candidate = {} x reference", times, factor_text(comparison.factor));
    return;
  }
  check.sentence = times + "; " + size;
}

void add_terms(const Bound& bound, Check& check) {
  if (bound.scale) {
    check.terms = {{Term::kScale, *bound.scale},
                   {Term::kQ,
                    *bound.scale > 0.0   ? check.value / *bound.scale
                    : check.value == 0.0 ? 0.0
                                         : std::numeric_limits<double>::infinity()}};
  }
  if (bound.ratio) {
    add_terms(*bound.ratio, check);
    check.terms.push_back({Term::kPasses, static_cast<double>(bound.passes)});
  }
  check.components = bound.yardstick.components();
}

Check worst_part_check(const SliceComparison& slice, double reference_norm) {
  Check check = check_of(slice, Question::kPart);
  check.source = "noise passes, in the part";
  check.detectable = slice.bound / reference_norm;
  if (!check.holds) {
    check.sentence = fmt::format(
        "{}{} differs {}x as much as round-off explains there, although the whole tensor is within "
        "its bound",
        slice.where,
        held_by(slice),
        short_number(slice.error / slice.bound));
  }
  return check;
}

Check common_factor_check(const FactorComparison& factor) {
  Check check = check_of(factor, Question::kFactor);
  check.source = "noise passes, along the reference";
  if (!check.holds) {
    check.sentence = fmt::format(
        "candidate = {} x reference, but round-off explains a deviation of at most {}; the "
        "error as a whole is within its bound",
        near_one_text(factor.deviation),
        short_number(factor.bound));
  }
  return check;
}

}  // namespace

Statistics statistics_of(const MergeResult& reference, const MergeResult& candidate) {
  if (reference.sketch || candidate.sketch) {
    return moments_of(sketch_of(reference), sketch_of(candidate)).all;
  }
  return compare(reference.type,
                 reference.bytes.data(),
                 candidate.type,
                 candidate.bytes.data(),
                 element_count(reference.shape));
}

std::pair<Statistics, Statistics> statistics_of(const MergeResult& reference,
                                                const MergeResult& first,
                                                const MergeResult& second) {
  if (reference.sketch || first.sketch || second.sketch) {
    return {statistics_of(reference, first), statistics_of(reference, second)};
  }
  const std::array pairs = {summed(reference, first), summed(reference, second)};
  std::vector<Moments> moments = moments_of(reference.shape, pairs);
  return {std::move(moments[0].all), std::move(moments[1].all)};
}

SummedPair summed(const MergeResult& reference, const MergeResult& other, bool with_slices) {
  return {{reference.type, reference.bytes.data()}, {other.type, other.bytes.data()}, with_slices};
}

bool are_alike(const MergeResult& expected, const MergeResult& found) {
  return expected.has_values() && found.has_values() && expected.shape == found.shape &&
         expected.held == found.held;
}

std::optional<Statistics> statistics_where_alike(const MergeResult& expected,
                                                 const MergeResult& found) {
  return are_alike(expected, found) ? std::optional(statistics_of(expected, found)) : std::nullopt;
}

Comparison comparison_of(const Statistics& statistics, std::span<const std::int64_t> shape) {
  Comparison comparison;
  comparison.error = statistics.error_norm();
  comparison.reference_norm = statistics.reference_norm();
  comparison.candidate_norm = std::sqrt(statistics.candidate_squared);
  comparison.relative_error = statistics.relative_error();
  comparison.factor = statistics.factor();
  comparison.max_difference = statistics.max_difference;
  if (statistics.max_index >= 0) {
    comparison.max_index = unravel(statistics.max_index, shape);
  }
  comparison.different = statistics.different;
  comparison.is_estimate = statistics.is_estimate;
  comparison.elements = statistics.count;
  comparison.nonfinite = statistics.reference_nonfinite;
  return comparison;
}

std::int64_t nan_on_both(const TensorPair& pair) {
  std::int64_t count = 0;
  for_each_block(pair, [&](auto reference, auto candidate, std::int64_t /*start*/) {
    for (std::size_t i = 0; i < reference.size(); ++i) {
      count += std::isnan(reference[i]) && std::isnan(candidate[i]) ? 1 : 0;
    }
  });
  return count;
}

std::vector<std::int64_t> unlike_in_finiteness(const TensorPair& pair) {
  std::vector<std::int64_t> positions;
  for_each_unlike(pair, [&](double /*reference*/, double /*candidate*/, std::int64_t position) {
    positions.push_back(position);
  });
  return positions;
}

std::vector<Check> finite_checks(const TensorPair& pair,
                                 const Statistics& statistics,
                                 const Match& match) {
  if (statistics.reference_nonfinite == 0 && statistics.candidate_nonfinite == 0) {
    return {};
  }
  std::string sentence = nonfinite_difference(pair);
  if (sentence.empty()) {
    return {};
  }
  Check check =
      failed(Question::kFinite, std::move(sentence), holders_of_nonfinite(match.candidate));
  check.terms = {{Term::kError, error_with_overflows(pair, statistics.error_norm(), match)}};
  return {std::move(check)};
}

std::vector<int> holders_of_nonfinite(std::span<const Shard> shards) {
  std::vector<int> ranks;
  for (const Shard& shard : shards) {
    if (shard.record->nonfinite > 0) {
      ranks.push_back(shard.rank);
    }
  }
  return ranks;
}

Check whole_check(const Comparison& comparison, const Bound& bound) {
  Check check;
  check.question = bound.origin == BoundOrigin::kExact ? Question::kExact : Question::kWhole;
  check.value = comparison.error;
  check.bound = bound.value;
  check.origin = bound.origin;
  check.source = bound.source;
  // Squares of tiny differences may vanish: equality is judged by the largest one.
  check.holds =
      bound.value == 0.0 ? !(comparison.max_difference > 0.0) : !(comparison.error > bound.value);
  if (bound.value > 0.0) {
    check.detectable = comparison.reference_norm > 0.0 ? bound.value / comparison.reference_norm
                                                       : std::numeric_limits<double>::infinity();
  }
  add_terms(bound, check);
  if (!check.holds) {
    describe(comparison, bound, check.share(), check);
  }
  return check;
}

std::vector<Check> part_checks(const Bounds& bounds,
                               const Judged& judged,
                               const TensorPair& pair,
                               const Slices& slices,
                               std::span<const Shard> candidate,
                               std::int64_t head,
                               PartNames names) {
  std::vector<Check> checks;
  if (judged.statistics.difference_squared == 0.0 || judged.id.kind == Kind::kRouting) {
    return checks;
  }
  const std::optional<PartBounds> parts = bounds.of_parts(judged);
  if (!parts) {
    return checks;
  }
  if (parts->slices) {
    if (const auto worst =
            worst_slice(pair, slices, {*parts->slices, candidate, head, std::move(names)})) {
      checks.push_back(worst_part_check(*worst, judged.statistics.reference_norm()));
    }
  }
  if (parts->factor && slices.all.reference_squared > 0.0) {
    checks.push_back(common_factor_check(
        parts->factor->compare(slices.all.along_reference / slices.all.reference_squared)));
  }
  return checks;
}

Check tolerance_check(const Tolerance& tolerance,
                      const TensorPair& pair,
                      const Comparison& comparison) {
  const ToleranceCheck measured = check_tolerance(tolerance, pair);
  Check check;
  check.question = Question::kTolerance;
  check.value = measured.worst;
  check.bound = 1.0;
  check.holds = measured.beyond == 0;
  check.origin = BoundOrigin::kAsked;
  check.source = to_string(tolerance) + " (chosen by the user)";
  check.detectable = measured.norm > 0.0 && comparison.reference_norm > 0.0
                         ? measured.norm / comparison.reference_norm
                         : 0.0;
  check.terms = {{Term::kRtol, tolerance.rtol},
                 {Term::kAtol, tolerance.atol},
                 {Term::kBeyond, static_cast<double>(measured.beyond)},
                 {Term::kNorm, measured.norm}};
  if (!check.holds) {
    check.sentence = fmt::format(
        "{} of {} differ by more than {}; the worst, at {}, exceeds it by a factor of {}",
        measured.beyond,
        counted(comparison.elements, "element"),
        to_string(tolerance),
        index_text(unravel(measured.worst_index, pair.shape)),
        short_number(measured.worst));
  }
  return check;
}

Check dyadic_check(const TensorId& id, const Comparison& comparison) {
  Check check;
  check.question = Question::kDyadic;
  check.value = comparison.error;
  check.holds = !(comparison.max_difference > 0.0);
  check.source = "exact (small integers add up exactly)";
  if (!check.holds) {
    check.sentence = fmt::format(
        "{}, although the operators that make {} add up small integers, which is exact in any "
        "order; {}",
        differing(comparison),
        id.path,
        size_of_error(comparison, 0.0));
  }
  return check;
}

}  // namespace ttrace
