#include "analysis/guess/agreement.h"

#include "analysis/guess/equal_values.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace ttrace {

const ActivationMatch& Agreements::of(const TensorId& reference, const TensorId& candidate) const {
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
  const MergeResult* const left = state_.reference.values(reference);
  const MergeResult* const right = state_.candidate.values(candidate);
  if (left == nullptr || right == nullptr || left->bytes.empty() || right->bytes.empty() ||
      !varies(*left) || !varies(*right)) {
    return {};
  }
  const double limit =
      round_off(state_.reference.type_of(reference), state_.candidate.type_of(candidate));
  const double norms[] = {state_.reference.norm_of(reference), state_.candidate.norm_of(candidate)};
  ActivationMatch best{Likeness::kDiffer, {}, 1.0};
  if (left->bytes.size() != right->bytes.size() ||
      std::abs(norms[0] - norms[1]) > limit * std::max(norms[0], norms[1])) {
    return best;
  }
  for (const Arrangement& how : arrangements(left->shape, right->shape)) {
    const double error =
        distance_of(state_, std::span(&reference, 1), std::span(&candidate, 1), {1, {1}}, how);
    if (error <= limit && (best.likeness == Likeness::kDiffer || error < best.error)) {
      best = {Likeness::kAgree, how, error};
    }
  }
  return best;
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
