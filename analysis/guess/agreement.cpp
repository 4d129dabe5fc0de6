#include "analysis/guess/agreement.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace ttrace {

ActivationMatch Agreements::of(const TensorId& reference, const TensorId& candidate) const {
  const ValueSummary& left = state_.reference.summary(reference);
  const ValueSummary& right = state_.candidate.summary(candidate);
  if (!left.varies || !right.varies) {
    return {};
  }
  const double limit =
      round_off(state_.reference.type_of(reference), state_.candidate.type_of(candidate));
  if (left.elements != right.elements ||
      std::abs(left.norm - right.norm) > limit * std::max(left.norm, right.norm)) {
    return {Likeness::kDiffer, {}, 1.0};
  }
  const auto [place, is_new] = known_.try_emplace(std::pair(reference, candidate));
  if (is_new) {
    place->second = compared(reference, candidate);
    if (place->second.likeness == Likeness::kAgree) {
      seen_.insert(place->second.how);
    }
  }
  return place->second;
}

ActivationMatch Agreements::compared(const TensorId& reference, const TensorId& candidate) const {
  const double limit =
      round_off(state_.reference.type_of(reference), state_.candidate.type_of(candidate));
  const TensorValues left = state_.reference.values(reference);
  const TensorValues right = state_.candidate.values(candidate);
  ActivationMatch best{Likeness::kDiffer, {}, 1.0};
  for (const Arrangement& how : arrangements(left->shape, right->shape)) {
    const double error = distance_of(state_, reference, candidate, how);
    if (error <= limit && (best.likeness == Likeness::kDiffer || error < best.error)) {
      best = {Likeness::kAgree, how, error};
    }
  }
  return best;
}

bool Agreements::have_same_numbers(const TensorId& reference, const TensorId& candidate) const {
  const ValueSummary& left = state_.reference.summary(reference);
  const ValueSummary& right = state_.candidate.summary(candidate);
  if (!left.varies || !right.varies || left.elements != right.elements ||
      std::abs(left.norm - right.norm) > kOtherOrder * left.norm) {
    return false;
  }
  const auto sorted = [](const TensorValues& values) {
    std::vector<double> numbers(numbers_of(*values).begin(), numbers_of(*values).end());
    std::ranges::sort(numbers);
    return numbers;
  };
  return sorted(state_.reference.values(reference)) == sorted(state_.candidate.values(candidate));
}

std::optional<Arrangement> Agreements::by_shape(const Unit& reference,
                                                const Unit& candidate) const {
  const std::vector<Arrangement> ways = arrangements(reference.shape, candidate.shape);
  const auto seen = std::ranges::find_if(
      ways, [&](const Arrangement& how) { return !how.is_same() && seen_.contains(how); });
  if (seen != ways.end()) {
    return *seen;
  }
  return ways.empty() || (ways.size() > 1 && !ways.front().is_same()) ? std::nullopt
                                                                      : std::optional(ways.front());
}

}  // namespace ttrace
