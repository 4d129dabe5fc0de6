#include "analysis/checks/norm_check.h"

#include "analysis/checks/clipping_norms.h"
#include "analysis/findings/wording.h"
#include "trace/base/kind.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <string>

namespace ttrace {
namespace {

// Most trainers add the squares up in f32, in an order of their own.
constexpr double kOfNorm = 1e-3;

// One rounding of f32 times the root of the number of squares that are added up one after the
// other.
double serial_sum(double squares) {
  return 0x1p-24 * std::sqrt(squares);
}

// Squared, over all main gradients of a step.
struct Norms {
  double reference = 0.0;
  double candidate = 0.0;
  double elements = 0.0;
  bool within = true;
};

// ||c||^2 = ||c - r||^2 + 2 <c, r> - ||r||^2
double candidate_squared(const Comparison& comparison) {
  const double reference = comparison.reference_norm * comparison.reference_norm;
  const double both = reference == 0.0 ? 0.0 : comparison.factor * reference;
  return std::max(0.0, comparison.error * comparison.error + 2.0 * both - reference);
}

std::map<std::int64_t, Norms> norms_by_step(std::span<const TensorVerdict> tensors) {
  std::map<std::int64_t, Norms> steps;
  for (const TensorVerdict& tensor : tensors) {
    if (tensor.id.kind != Kind::kMainGrad) {
      continue;
    }
    Norms& norms = steps[tensor.id.step];
    norms.within = norms.within && tensor.status() == Status::kWithin && tensor.comparison;
    if (tensor.comparison) {
      norms.reference += std::pow(tensor.comparison->reference_norm, 2);
      norms.candidate += candidate_squared(*tensor.comparison);
      norms.elements += static_cast<double>(tensor.comparison->elements);
    }
  }
  return steps;
}

bool is_root(double value, double squared, double tolerance = kOfNorm) {
  return squared > 0.0 && std::abs(value - std::sqrt(squared)) <= tolerance * std::sqrt(squared);
}

bool is_norm(const TensorVerdict& tensor, const ModelVocabulary& vocabulary) {
  return vocabulary.is_scalar(Role::kGradientNorm, tensor.id) && tensor.comparison &&
         tensor.find(Question::kTolerance) == nullptr && tensor.comparison->elements == 1;
}

double as_f32(double value) {
  return static_cast<float>(value);
}

double candidate_norm(const TensorVerdict& tensor) {
  return tensor.comparison->factor * tensor.comparison->reference_norm;
}

// By how much, as a share of it, the two norms of a step differ, if each is that of its own main
// gradients, but for what a serial sum rounds, and these are all within bound.
std::map<std::int64_t, double> differences_of_norms(std::span<const TensorVerdict> tensors,
                                                    const ModelVocabulary& vocabulary) {
  const std::map<std::int64_t, Norms> steps = norms_by_step(tensors);
  std::map<std::int64_t, double> differences;
  for (const TensorVerdict& tensor : tensors) {
    const auto found = steps.find(tensor.id.step);
    if (found == steps.end() || !found->second.within || !is_norm(tensor, vocabulary)) {
      continue;
    }
    const Norms& norms = found->second;
    const double rounding = serial_sum(norms.elements);
    if (!is_root(tensor.comparison->reference_norm, norms.reference, rounding) ||
        !is_root(candidate_norm(tensor), norms.candidate, rounding)) {
      continue;
    }
    double& difference = differences[tensor.id.step];
    difference = std::max(difference, tensor.comparison->relative_error);
  }
  return differences;
}

bool differs_by_size(const TensorVerdict& tensor) {
  return tensor.status() == Status::kDiverged && tensor.tier() == Tier::kT2 && tensor.comparison;
}

// `own` is the norm of the candidate's own main gradients.
Check check_of_norm(double candidate, double own, double tolerance) {
  Check check;
  check.question = Question::kNorm;
  check.value = std::abs(candidate - own);
  check.bound = tolerance * own;
  check.detectable = tolerance;
  check.holds = own > 0.0 && check.value <= check.bound;
  check.source = fmt::format("exact (norm of the main gradients, up to {} %)",
                             short_number(100.0 * tolerance));
  if (!check.holds) {
    check.sentence = fmt::format(
        "it differs by {} from the norm of the candidate's own main gradients, {}; in the "
        "reference it equals that norm",
        short_number(std::abs(candidate / own - 1.0)),
        short_number(own));
  }
  return check;
}

}  // namespace

void check_norms(std::span<TensorVerdict> tensors,
                 const ModelVocabulary& vocabulary,
                 ElementType precision,
                 const Allowances& allowances) {
  const std::map<std::int64_t, Norms> steps = norms_by_step(tensors);
  for (TensorVerdict& tensor : tensors) {
    const auto found = steps.find(tensor.id.step);
    if (found == steps.end() || !found->second.within || !is_norm(tensor, vocabulary) ||
        tensor.status() != Status::kWithin) {
      continue;
    }
    const Norms& norms = found->second;
    const double reference = tensor.comparison->reference_norm;
    if (is_root(reference, norms.reference)) {
      const double norm = candidate_norm(tensor);
      tensor.add(check_of_norm(norm,
                               std::sqrt(norms.candidate),
                               allowances.has(Allowance::kNormTolerance)
                                   ? kOfNorm + rounding_of_stored_norm(precision, as_f32(norm))
                                   : 0.0));
    }
  }
}

Excuses behind_norms(std::span<const TensorVerdict> tensors,
                     const ModelVocabulary& vocabulary,
                     const Allowances& allowances) {
  // Moments keep the gradients of all steps so far; a square doubles the share.
  constexpr double kOfDifference = 3.0;
  Excuses excuses(tensors.size());
  if (!allowances.has(Allowance::kNormTolerance)) {
    return excuses;
  }
  const std::map<std::int64_t, double> differences = differences_of_norms(tensors, vocabulary);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const TensorVerdict& tensor = tensors[i];
    if (!differences.contains(tensor.id.step) || !differs_by_size(tensor)) {
      continue;
    }
    double most = 0.0;
    for (const auto& [step, difference] : differences) {
      most = step <= tensor.id.step ? std::max(most, difference) : most;
    }
    const bool is_updated =
        traits_of(tensor.id.kind).of_update && tensor.id.kind != Kind::kMainGrad;
    if (is_norm(tensor, vocabulary) ||
        (is_updated && tensor.comparison->relative_error <= kOfDifference * most)) {
      excuses[i] = Excused{Excuse::kInherited,
                           fmt::format("the gradients' norms of the two runs differ by {}, as the "
                                       "order of so many summands explains",
                                       short_number(most))};
    }
  }
  return excuses;
}

}  // namespace ttrace
