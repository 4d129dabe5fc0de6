#include "analysis/findings/report.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace ttrace {

std::string_view name_of(Tier tier) {
  switch (tier) {
    case Tier::kT0:
      return "T0";
    case Tier::kT1:
      return "T1";
    case Tier::kT2:
      return "T2";
    case Tier::kT3:
      return "T3";
    case Tier::kGolden:
      return "golden";
  }
  return "";
}

std::string_view name_of(Status status) {
  switch (status) {
    case Status::kWithin:
      return "within";
    case Status::kDiverged:
      return "diverged";
    case Status::kMissingInCandidate:
      return "missing_in_candidate";
    case Status::kMissingInReference:
      return "missing_in_reference";
    case Status::kIncomplete:
      return "incomplete";
    case Status::kBehindFlip:
      return "behind_flip";
    case Status::kInherited:
      return "inherited";
    case Status::kNotJudged:
      return "not_judged";
  }
  return "";
}

std::string_view name_of(Symptom symptom) {
  switch (symptom) {
    case Symptom::kNone:
      return "none";
    case Symptom::kMissing:
      return "missing";
    case Symptom::kRanksContradict:
      return "ranks_contradict";
    case Symptom::kGap:
      return "gap";
    case Symptom::kOverlap:
      return "overlap";
    case Symptom::kReplicasDisagree:
      return "replicas_disagree";
    case Symptom::kAddendsMissing:
      return "addends_missing";
    case Symptom::kShapesDiffer:
      return "shapes_differ";
    case Symptom::kTypesDiffer:
      return "types_differ";
    case Symptom::kRowsDiffer:
      return "rows_differ";
    case Symptom::kNonFinite:
      return "non_finite";
    case Symptom::kNotEqual:
      return "not_equal";
    case Symptom::kIllegalFlip:
      return "illegal_flip";
    case Symptom::kRecompute:
      return "recompute_differs";
    case Symptom::kMessage:
      return "message_differs";
    case Symptom::kCollective:
      return "collective_wrong";
    case Symptom::kNorm:
      return "norm_wrong";
    case Symptom::kMean:
      return "mean_wrong";
    case Symptom::kFactor:
      return "factor";
    case Symptom::kSlice:
      return "slice_out_of_bound";
    case Symptom::kOutOfBound:
      return "out_of_bound";
    case Symptom::kOperator:
      return "operator";
    case Symptom::kSource:
      return "other_source";
    case Symptom::kNotExact:
      return "not_exact";
    case Symptom::kTooAccurate:
      return "too_accurate";
    case Symptom::kTooCoarse:
      return "too_coarse";
  }
  return "";
}

double NoiseTerms::squared_without_flips() const {
  return std::max(mean_squared * growth + optimizer + inherited + of_scales + of_scalars, least);
}

double FactorComparison::needed_limit() const {
  const double beyond = std::abs(deviation) - granted;
  return beyond <= least ? 0.0 : beyond / scale;
}

double OperatorResidual::scale() const {
  return std::hypot(std::max(native, rounding), structure);
}

double OperatorResidual::residual() const {
  if (error == 0.0) {
    return 0.0;
  }
  return scale() == 0.0 ? std::numeric_limits<double>::infinity() : error / scale();
}

void OperatorResidual::leave_unjudged() {
  limit = std::numeric_limits<double>::infinity();
  slice.reset();
  in_noise.reset();
  told.reset();
}

double Comparison::ratio() const {
  if (asked) {
    return asked->worst;
  }
  if (error == 0.0) {
    return 0.0;
  }
  return bound == 0.0 ? std::numeric_limits<double>::infinity() : error / bound;
}

Counts Report::counts() const {
  Counts counts;
  counts.tensors = tensors.size();
  for (const TensorVerdict& tensor : tensors) {
    if (tensor.allowed) {
      ++(tensor.status == Status::kDiverged ? counts.allowed_failed : counts.allowed_missing);
    }
    const auto has = [&](Status status) { return !tensor.allowed && tensor.status == status; };
    counts.within_bound += has(Status::kWithin) ? 1 : 0;
    counts.out_of_bound += has(Status::kDiverged) ? 1 : 0;
    counts.missing_in_candidate += has(Status::kMissingInCandidate) ? 1 : 0;
    counts.missing_in_reference += has(Status::kMissingInReference) ? 1 : 0;
    counts.incomplete += has(Status::kIncomplete) ? 1 : 0;
    counts.behind_flip += has(Status::kBehindFlip) ? 1 : 0;
    counts.bounds_from_noise += tensor.origin == BoundOrigin::kNoise ? 1 : 0;
    counts.bounds_exact += tensor.origin == BoundOrigin::kExact ? 1 : 0;
    counts.bounds_class_default += tensor.origin == BoundOrigin::kClassDefault ? 1 : 0;
    counts.bounds_asked += tensor.origin == BoundOrigin::kAsked ? 1 : 0;
    counts.operators += tensor.residual ? 1 : 0;
    counts.operators_wrong +=
        tensor.residual && !tensor.residual->is_within() && !has(Status::kWithin) ? 1 : 0;
    counts.inherited += has(Status::kInherited) ? 1 : 0;
    counts.must_be_equal += tensor.tier == Tier::kT3 ? 1 : 0;
    counts.not_judged += has(Status::kNotJudged) ? 1 : 0;
    counts.golden += tensor.golden ? 1 : 0;
    counts.too_accurate += tensor.golden && tensor.golden->is_too_accurate() ? 1 : 0;
    counts.too_coarse += tensor.golden && tensor.golden->is_too_coarse() ? 1 : 0;
  }
  return counts;
}

bool Report::undecided() const {
  return !diverged() &&
         std::any_of(tensors.begin(), tensors.end(), [](const TensorVerdict& tensor) {
           return tensor.status == Status::kBehindFlip;
         });
}

std::optional<RoutingFlips> Report::flips() const {
  std::optional<RoutingFlips> all;
  for (const TensorVerdict& tensor : tensors) {
    if (!tensor.flips) {
      continue;
    }
    all = all ? all : std::optional(RoutingFlips{});
    all->tokens += tensor.flips->tokens;
    all->flips += tensor.flips->flips;
    all->illegal += tensor.flips->illegal;
    // a / b > c / d without dividing by zero
    if (tensor.flips->flips > 0 &&
        tensor.flips->largest_move * all->bound >= all->largest_move * tensor.flips->bound) {
      all->largest_move = tensor.flips->largest_move;
      all->bound = tensor.flips->bound;
    }
  }
  return all;
}

}  // namespace ttrace
