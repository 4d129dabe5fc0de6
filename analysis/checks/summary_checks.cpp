#include "analysis/checks/summary_checks.h"

#include "analysis/align/values.h"
#include "analysis/checks/clipping_norms.h"
#include "analysis/findings/wording.h"
#include "trace/base/kind.h"
#include "trace/merge/merge.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ttrace {
namespace {

// Most trainers add the squares up in f32, in an order of their own.
constexpr double kOfNorm = 1e-3;
// Programs add thousands of numbers up in f32, in an order of their own.
constexpr double kOfMean = 1e-4;

// Whether the tensor is one number that has the role, and that the user asks for no tolerance of.
bool is_single_number(const TensorVerdict& tensor, Role role, const ModelVocabulary& vocabulary) {
  return vocabulary.is_scalar(role, tensor.id) && tensor.comparison &&
         tensor.find(Question::kTolerance) == nullptr && tensor.comparison->elements == 1;
}

// Of a tensor of one number, which is above zero in the reference.
double candidate_number(const TensorVerdict& tensor) {
  return tensor.comparison->factor * tensor.comparison->reference_norm;
}

bool is_near(double value, double expected, double tolerance) {
  return std::abs(value - expected) <= tolerance * std::abs(expected);
}

// `own`: what the candidate's own tensors make. "the `what` of the `of`".
Check summary_check(Question question,
                    double candidate,
                    double own,
                    double tolerance,
                    bool holds,
                    std::string_view of,
                    std::string_view what) {
  Check check;
  check.question = question;
  check.value = std::abs(candidate - own);
  check.bound = tolerance * std::abs(own);
  check.detectable = tolerance;
  check.holds = holds;
  if (!holds) {
    check.sentence = fmt::format(
        "it differs by {} from the {} of the candidate's own {}, {}; in the reference it equals "
        "that {}",
        short_number(std::abs(candidate / own - 1.0)),
        what,
        of,
        short_number(own),
        what);
  }
  return check;
}

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

bool is_root(double value, double squared, double tolerance) {
  return squared > 0.0 && is_near(value, std::sqrt(squared), tolerance);
}

double as_f32(double value) {
  return static_cast<float>(value);
}

// By how much, as a share of it, the two norms of a step differ, if each is that of its own main
// gradients, but for what a serial sum rounds, and these are all within bound.
std::map<std::int64_t, double> differences_of_norms(std::span<const TensorVerdict> tensors,
                                                    const ModelVocabulary& vocabulary) {
  const std::map<std::int64_t, Norms> steps = norms_by_step(tensors);
  std::map<std::int64_t, double> differences;
  for (const TensorVerdict& tensor : tensors) {
    const auto found = steps.find(tensor.id.step);
    if (found == steps.end() || !found->second.within ||
        !is_single_number(tensor, Role::kGradientNorm, vocabulary)) {
      continue;
    }
    const Norms& norms = found->second;
    const double rounding = serial_sum(norms.elements);
    if (!is_root(tensor.comparison->reference_norm, norms.reference, rounding) ||
        !is_root(candidate_number(tensor), norms.candidate, rounding)) {
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

std::optional<Values> merged(std::span<const Shard> shards) {
  if (shards.empty()) {
    return std::nullopt;
  }
  const MergeResult result = merge(shards);
  return result.has_tensor() && result.findings.empty() ? std::optional(values_of(result))
                                                        : std::nullopt;
}

// The losses and masks of the micro-batches of a step.
struct Means {
  double sum = 0.0;
  double tokens = 0.0;
  double sum_of_means = 0.0;
  double microbatches = 0.0;
  bool whole = true;

  void add(const std::optional<Values>& losses, std::optional<Values> mask, bool masked) {
    const bool fits = losses && mask && mask->shape.size() == losses->shape.size();
    const auto weights = fits ? by_row(*std::move(mask), losses->shape) : std::nullopt;
    if (!losses || (masked && !weights)) {
      whole = false;
      return;
    }
    double here = 0.0;
    double counted_tokens = 0.0;
    for (std::size_t i = 0; i < losses->data.size(); ++i) {
      const double weight = masked ? (*weights)[i] : 1.0;
      here += weight == 0.0 ? 0.0 : weight * losses->data[i];
      counted_tokens += weight;
    }
    sum += here;
    tokens += counted_tokens;
    sum_of_means += counted_tokens == 0.0 ? 0.0 : here / counted_tokens;
    microbatches += 1.0;
  }
  [[nodiscard]] double over_tokens() const { return sum / tokens; }
  [[nodiscard]] double over_microbatches() const { return sum_of_means / microbatches; }
};

struct StepLosses {
  Means reference;
  Means candidate;
};

bool is_mask(const TensorId& id, const ModelVocabulary& vocabulary) {
  return id.kind == Kind::kData && vocabulary.is(Role::kLossMask, id.path);
}

std::map<std::int64_t, StepLosses> losses_by_step(std::span<const Match> matches,
                                                  const ModelVocabulary& vocabulary) {
  std::map<std::pair<std::int64_t, std::int64_t>, const Match*> masks;
  for (const Match& match : matches) {
    if (is_mask(match.id, vocabulary)) {
      masks[{match.id.step, match.id.microbatch}] = &match;
    }
  }
  std::map<std::int64_t, StepLosses> steps;
  for (const Match& match : matches) {
    if (match.id.kind != Kind::kLoss) {
      continue;
    }
    const auto found = masks.find({match.id.step, match.id.microbatch});
    const Match* mask = found == masks.end() ? nullptr : found->second;
    StepLosses& step = steps[match.id.step];
    const auto add = [&](Means& means, const std::vector<Shard> Match::*side) {
      means.add(merged(match.*side),
                mask == nullptr ? std::nullopt : merged(mask->*side),
                mask != nullptr);
    };
    add(step.reference, &Match::reference);
    add(step.candidate, &Match::candidate);
  }
  return steps;
}

}  // namespace

void check_norms(std::span<TensorVerdict> tensors,
                 const ModelVocabulary& vocabulary,
                 ElementType precision,
                 const Allowances& allowances) {
  const std::map<std::int64_t, Norms> steps = norms_by_step(tensors);
  for (TensorVerdict& tensor : tensors) {
    const auto found = steps.find(tensor.id.step);
    if (found == steps.end() || !found->second.within ||
        !is_single_number(tensor, Role::kGradientNorm, vocabulary) ||
        tensor.status() != Status::kWithin) {
      continue;
    }
    const auto& [reference, candidate, elements, within] = found->second;
    if (is_root(tensor.comparison->reference_norm, reference, kOfNorm)) {
      const double norm = candidate_number(tensor);
      const double tolerance = allowances.granted(
          Allowance::kOrderOfSums, kOfNorm + rounding_of_stored_norm(precision, as_f32(norm)));
      Check check = summary_check(Question::kNorm,
                                  norm,
                                  std::sqrt(candidate),
                                  tolerance,
                                  is_root(norm, candidate, tolerance),
                                  "main gradients",
                                  "norm");
      check.source = fmt::format("exact (norm of the main gradients, up to {} %)",
                                 short_number(100.0 * tolerance));
      tensor.add(std::move(check));
    }
  }
}

void check_losses(std::span<const Match> matches,
                  std::span<TensorVerdict> tensors,
                  const ModelVocabulary& vocabulary,
                  const Allowances& allowances) {
  const double tolerance = allowances.granted(Allowance::kOrderOfSums, kOfMean);
  const auto is_judged = [&](const TensorVerdict& tensor) {
    return is_single_number(tensor, Role::kLoss, vocabulary) && tensor.status() == Status::kWithin;
  };
  if (std::ranges::none_of(tensors, is_judged)) {
    return;
  }
  std::map<std::int64_t, StepLosses> steps = losses_by_step(matches, vocabulary);
  for (const TensorVerdict& tensor : tensors) {
    if ((tensor.id.kind == Kind::kLoss || is_mask(tensor.id, vocabulary)) &&
        tensor.status() != Status::kWithin) {
      steps.erase(tensor.id.step);
    }
  }
  for (TensorVerdict& tensor : tensors) {
    const auto step = steps.find(tensor.id.step);
    if (step == steps.end() || !is_judged(tensor) || !step->second.reference.whole ||
        !step->second.candidate.whole) {
      continue;
    }
    const auto& [reference, candidate] = step->second;
    const double expected = tensor.comparison->reference_norm;
    const double found = candidate_number(tensor);
    const bool over_tokens = is_near(expected, reference.over_tokens(), kOfMean);
    const bool over_microbatches = is_near(expected, reference.over_microbatches(), kOfMean);
    const bool right =
        (over_tokens && is_near(found, candidate.over_tokens(), tolerance)) ||
        (over_microbatches && is_near(found, candidate.over_microbatches(), tolerance));
    if (over_tokens || over_microbatches) {
      const double own = over_tokens ? candidate.over_tokens() : candidate.over_microbatches();
      Check check =
          summary_check(Question::kMean, found, own, tolerance, right, "losses per token", "mean");
      check.source = "exact (mean of the losses per token, up to 0.01 %)";
      tensor.add(std::move(check));
    }
  }
}

Excuses behind_norms(std::span<const TensorVerdict> tensors,
                     const ModelVocabulary& vocabulary,
                     const Allowances& allowances) {
  // Moments keep the gradients of all steps so far; a square doubles the share.
  constexpr double kOfDifference = 3.0;
  Excuses excuses(tensors.size());
  if (!allowances.has(Allowance::kOrderOfSums)) {
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
    if (is_single_number(tensor, Role::kGradientNorm, vocabulary) ||
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
