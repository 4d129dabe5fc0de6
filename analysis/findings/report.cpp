#include "analysis/findings/report.h"

#include <algorithm>

namespace ttrace {
namespace {

void count_status(const TensorVerdict& tensor, Counts& counts) {
  const Status status = tensor.status();
  if (tensor.allowed()) {
    ++(status == Status::kDiverged ? counts.allowed_failed : counts.allowed_missing);
    return;
  }
  switch (status) {
    case Status::kWithin:
      ++counts.within_bound;
      break;
    case Status::kDiverged:
      ++counts.out_of_bound;
      break;
    case Status::kMissingInCandidate:
      ++counts.missing_in_candidate;
      break;
    case Status::kMissingInReference:
      ++counts.missing_in_reference;
      break;
    case Status::kIncomplete:
      ++counts.incomplete;
      break;
    case Status::kBehindFlip:
      ++counts.behind_flip;
      break;
    case Status::kInherited:
      ++counts.inherited;
      break;
    case Status::kNotJudged:
      ++counts.not_judged;
      break;
  }
}

void count_origin(BoundOrigin origin, Counts& counts) {
  switch (origin) {
    case BoundOrigin::kExact:
      ++counts.bounds_exact;
      break;
    case BoundOrigin::kNoise:
      ++counts.bounds_from_noise;
      break;
    case BoundOrigin::kClassDefault:
      ++counts.bounds_class_default;
      break;
    case BoundOrigin::kAsked:
      ++counts.bounds_asked;
      break;
  }
}

void count_checks(const TensorVerdict& tensor, Counts& counts) {
  const auto count = [](bool is, std::size_t& number) { number += is ? 1 : 0; };
  const bool operator_wrong = tensor.fails(Question::kOperator) ||
                              tensor.fails(Question::kOperatorPart) ||
                              tensor.fails(Question::kOperatorFactor);
  count(tensor.find(Question::kOperator) != nullptr, counts.operators);
  count(operator_wrong && tensor.status() != Status::kWithin, counts.operators_wrong);
  count(tensor.tier() == Tier::kT3, counts.must_be_equal);
  count(tensor.find(Question::kTooCoarse) != nullptr, counts.golden);
  count(tensor.fails(Question::kTooAccurate), counts.too_accurate);
  count(tensor.fails(Question::kTooCoarse), counts.too_coarse);
}

}  // namespace

std::size_t NoiseCoverage::untouched_tensors() const {
  std::size_t count = 0;
  for (const auto& [kind, of_kind] : untouched) {
    count += of_kind;
  }
  return count;
}

Counts Report::counts() const {
  Counts counts;
  counts.tensors = tensors.size();
  for (const TensorVerdict& tensor : tensors) {
    count_status(tensor, counts);
    count_origin(tensor.origin(), counts);
    count_checks(tensor, counts);
  }
  return counts;
}

bool Report::undecided() const {
  return !diverged() &&
         std::any_of(tensors.begin(), tensors.end(), [](const TensorVerdict& tensor) {
           return tensor.status() == Status::kBehindFlip;
         });
}

std::optional<RoutingTotals> Report::flips() const {
  std::optional<RoutingTotals> all;
  for (const TensorVerdict& tensor : tensors) {
    const Check* const routing = tensor.find(Question::kRouting);
    if (routing == nullptr) {
      continue;
    }
    all = all ? all : std::optional(RoutingTotals{});
    const auto flips = static_cast<std::int64_t>(routing->term("flips"));
    all->tokens += static_cast<std::int64_t>(routing->term("tokens"));
    all->flips += flips;
    all->illegal += static_cast<std::int64_t>(routing->term("illegal"));
    // a / b > c / d without dividing by zero
    if (flips > 0 && routing->value * all->bound >= all->largest_move * routing->bound) {
      all->largest_move = routing->value;
      all->bound = routing->bound;
    }
  }
  return all;
}

}  // namespace ttrace
