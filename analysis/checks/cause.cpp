#include "analysis/checks/cause.h"

#include "analysis/checks/codes_check.h"
#include "analysis/findings/wording.h"

#include <algorithm>
#include <cmath>

namespace ttrace {
namespace {

// NaN, Inf and -Inf are three values; everything finite is one.
int finiteness(double value) {
  if (std::isfinite(value)) {
    return 0;
  }
  return std::isnan(value) ? 1 : (value > 0 ? 2 : 3);
}

struct NonfiniteCount {
  std::int64_t candidate_only = 0;
  std::int64_t reference_only = 0;
  std::int64_t unlike = 0;  // non-finite on both sides, but not the same
  std::int64_t first = -1;

  void add(double reference, double candidate, std::int64_t position) {
    const int r = finiteness(reference);
    const int c = finiteness(candidate);
    if (r == c) {
      return;
    }
    first = first < 0 ? position : first;
    candidate_only += r == 0 ? 1 : 0;
    reference_only += c == 0 ? 1 : 0;
    unlike += r != 0 && c != 0 ? 1 : 0;
  }
};

// ||c - alpha r||: d = (alpha - 1) r + e with e orthogonal to r, so nothing cancels but what is the
// factor's share of ||d||.
double error_beside_factor(const Comparison& comparison) {
  const double share = (comparison.factor - 1.0) * comparison.reference_norm;
  return std::sqrt(std::max(0.0, comparison.error * comparison.error - share * share));
}

bool explained_by_factor(const Comparison& comparison) {
  constexpr double kSmallShare = 0.05;
  if (!std::isfinite(comparison.factor) || comparison.elements < 2) {
    return false;
  }
  const double rest = error_beside_factor(comparison);
  return rest <= comparison.bound || rest <= kSmallShare * comparison.error;
}

std::string size_of_error(const Comparison& comparison) {
  if (comparison.reference_norm == 0.0) {
    return "error " + short_number(comparison.error) + " where the reference is zero, bound " +
           short_number(comparison.bound);
  }
  return "error " + short_number(comparison.relative_error) + " of the reference's norm, bound " +
         short_number(comparison.detectable);
}

const void* element_at(const void* data, ElementType type, std::int64_t elements) {
  return static_cast<const std::byte*>(data) +
         static_cast<std::size_t>(elements) * element_size(type);
}

std::string held_by(const SliceComparison& slice) {
  return slice.ranks.empty() || slice.where.find("rank") != std::string::npos
             ? ""
             : ", held by " + ranks_text(slice.ranks) + ",";
}

// "- 0.001"
std::string signed_text(double value) {
  return (value < 0.0 ? "- " : "+ ") + short_number(std::abs(value));
}

Observation whole_operator_error(const OperatorResidual& residual) {
  return {Symptom::kOperator,
          "not what its operators make of the candidate's own inputs: they err " +
              short_number(residual.residual()) + "x as much as in the reference, where " +
              short_number(residual.limit) + "x passes",
          {}};
}

}  // namespace

TensorPair pair_of(const MergeResult& reference, const MergeResult& candidate) {
  return {reference.shape,
          reference.type,
          reference.bytes.data(),
          candidate.type,
          candidate.bytes.data()};
}

Symptom symptom_of(MergeDefect defect) {
  switch (defect) {
    case MergeDefect::kShapesContradict:
      return Symptom::kRanksContradict;
    case MergeDefect::kGap:
      return Symptom::kGap;
    case MergeDefect::kOverlap:
      return Symptom::kOverlap;
    case MergeDefect::kReplicasDisagree:
      return Symptom::kReplicasDisagree;
    case MergeDefect::kAddendsMissing:
      return Symptom::kAddendsMissing;
  }
  return Symptom::kNone;
}

std::optional<Observation> nonfinite_difference(const TensorPair& pair) {
  constexpr std::int64_t kBlock = 1024;
  const std::int64_t count =
      element_count(std::vector<std::int64_t>(pair.shape.begin(), pair.shape.end()));
  std::vector<double> reference(kBlock);
  std::vector<double> candidate(kBlock);
  NonfiniteCount found;
  for (std::int64_t start = 0; start < count; start += kBlock) {
    const std::int64_t block = std::min(kBlock, count - start);
    to_double(pair.reference_type,
              element_at(pair.reference, pair.reference_type, start),
              block,
              reference.data());
    to_double(pair.candidate_type,
              element_at(pair.candidate, pair.candidate_type, start),
              block,
              candidate.data());
    for (std::int64_t i = 0; i < block; ++i) {
      const auto at = static_cast<std::size_t>(i);
      found.add(reference[at], candidate[at], start + i);
    }
  }
  if (found.first < 0) {
    return std::nullopt;
  }
  std::string sentence;
  const auto append = [&sentence](std::int64_t elements, const std::string& what) {
    if (elements > 0) {
      sentence += (sentence.empty() ? "" : ", ") + counted(elements, "element", "elements") + what;
    }
  };
  append(found.candidate_only, " NaN or Inf where the reference is finite");
  append(found.reference_only, " finite where the reference is NaN or Inf");
  append(found.unlike, " NaN or Inf unlike the reference's");
  return Observation{Symptom::kNonFinite,
                     sentence + ", first at " + index_text(unravel(found.first, pair.shape)),
                     {}};
}

Observation beyond_bound(const Comparison& comparison, const Bound& bound) {
  if (bound.value == 0.0 && bound.origin != BoundOrigin::kClassDefault) {
    const std::string why = bound.origin == BoundOrigin::kExact
                                ? ", which must be equal"
                                : ", and the reference was " + bound.source;
    return {Symptom::kNotEqual,
            std::to_string(comparison.different) + " of " +
                counted(comparison.elements, "element", "elements") + " differ" + why + "; " +
                size_of_error(comparison),
            {}};
  }
  const std::string times = bound.value == 0.0 ? "differs from a reference that is zero"
                                               : "differs " + short_number(comparison.ratio()) +
                                                     "x more than round-off explains";
  if (explained_by_factor(comparison)) {
    return {Symptom::kFactor,
            times + "; candidate = " + factor_text(comparison.factor) + " x reference",
            {}};
  }
  return {Symptom::kOutOfBound, times + "; " + size_of_error(comparison), {}};
}

Observation operator_error(const OperatorResidual& residual) {
  if (residual.residual() > residual.limit) {
    return whole_operator_error(residual);
  }
  if (residual.slice && residual.slice->beyond()) {
    const SliceComparison& slice = *residual.slice;
    const std::string errs = slice.is_addend
                                 ? " is not what the rank's own rows give: it errs " +
                                       short_number(slice.q) + "x as much as round-off makes it"
                                 : " is not what the operators make of the candidate's own "
                                   "inputs: it errs " +
                                       short_number(slice.q) + "x as much as in the reference";
    return {Symptom::kOperator,
            slice.where + held_by(slice) + errs + ", where " +
                short_number(slice.bound * slice.q / slice.error) +
                "x passes; the tensor as a whole is within that",
            slice.ranks};
  }
  const FactorComparison& factor = *residual.in_noise;
  const std::string times = "(1 " + signed_text(factor.deviation) + ") times ";
  const std::string what = factor.where.empty()
                               ? "its operators make " + times + "of what they should of"
                               : factor.where + " is " + times + "what the operators make of";
  return {Symptom::kOperator,
          what + " the candidate's own inputs, where round-off explains up to " +
              short_number(factor.bound) + "; the error as a whole is within that of round-off",
          {}};
}

Observation not_exact(const TensorId& id, const Comparison& comparison) {
  return {Symptom::kNotExact,
          std::to_string(comparison.different) + " of " +
              counted(comparison.elements, "element", "elements") +
              " differ, although what makes " + id.path +
              " adds up small integers, which is exact in any order; " + size_of_error(comparison),
          {}};
}

Observation formats_differ(const CodesComparison& codes) {
  return {Symptom::kTypesDiffer,
          "its codes are numbers of " + format_text(codes.candidate.format) + ", of " +
              format_text(codes.reference.format) + " in the reference",
          {}};
}

Observation golden_error(const GoldenComparison& golden, const std::string& precision) {
  if (golden.is_too_accurate()) {
    const std::string recipe = precision == "fp8"   ? "is FP8 active here?"
                               : precision == "f32" ? "does it compute in FP64 here?"
                                                    : "is autocast active here?";
    return {Symptom::kTooAccurate,
            "computes in higher precision than " + precision + ": against FP64 it errs " +
                short_number(golden.rho()) + "x as much as the reference, where round-off leaves " +
                short_number(golden.least) + "x at least; " + recipe,
            {}};
  }
  return {Symptom::kTooCoarse,
          "computes in lower precision than " + precision + ", or wrongly: against FP64 it errs " +
              short_number(golden.candidate_error / golden.scale) +
              "x as much as round-off makes the reference err, where " +
              short_number(golden.limit) + "x passes",
          {}};
}

Observation beyond_slice_bound(const SliceComparison& slice) {
  return {Symptom::kSlice,
          slice.where + held_by(slice) + " differs " + short_number(slice.error / slice.bound) +
              "x more than round-off explains there, while the whole tensor is within its bound",
          slice.ranks};
}

Observation beyond_factor_bound(const FactorComparison& factor) {
  return {Symptom::kFactor,
          "candidate = (1 " + signed_text(factor.deviation) +
              ") x reference, where round-off explains up to " + short_number(factor.bound) +
              "; the error as a whole is within its bound",
          {}};
}

Observation beyond_tolerance(const ToleranceCheck& check, std::span<const std::int64_t> shape) {
  const std::int64_t elements =
      element_count(std::vector<std::int64_t>(shape.begin(), shape.end()));
  return {Symptom::kOutOfBound,
          std::to_string(check.beyond) + " of " + counted(elements, "element", "elements") +
              " beyond " + to_string(check.tolerance) + "; the worst, at " +
              index_text(unravel(check.worst_index, shape)) + ", by a factor of " +
              short_number(check.worst),
          {}};
}

}  // namespace ttrace
