#include "analysis/zoom/operator_alignment.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace ttrace {
namespace {

using Positions = std::vector<std::size_t>;
using Partners = std::vector<std::optional<std::size_t>>;

// What counts for a pair. A name alone is enough where nothing speaks against it.
constexpr int kSameName = 10;
constexpr int kSameShape = 6;
constexpr int kCutShape = 4;
constexpr int kOtherShape = -6;
constexpr int kSameSource = 6;
constexpr int kSameModule = 3;
constexpr int kSameSize = 2;
constexpr int kNearSize = 1;
constexpr int kNoResult = 2;  // instead of all others: an operator without values

bool is_cut(const std::vector<std::int64_t>& whole, const std::vector<std::int64_t>& part) {
  if (whole.size() != part.size()) {
    return false;
  }
  for (std::size_t dim = 0; dim < whole.size(); ++dim) {
    if (part[dim] > whole[dim]) {
      return false;
    }
  }
  return true;
}

int shape_score(const ListedOperator& left, const ListedOperator& right) {
  return left.shape == right.shape         ? kSameShape
         : is_cut(left.shape, right.shape) ? kCutShape
                                           : kOtherShape;
}

int size_score(const ListedOperator& left, const ListedOperator& right) {
  constexpr double kSame = 1e-3;
  constexpr double kNear = 0.1;
  const double apart = std::fabs(left.size - right.size);
  const double larger = std::max(left.size, right.size);
  return apart <= kSame * larger ? kSameSize : apart <= kNear * larger ? kNearSize : 0;
}

// 0: they cannot be a pair.
int score(const ListedOperator& left, const ListedOperator& right) {
  if (left.base != right.base || left.call.backward != right.call.backward ||
      left.call.recompute != right.call.recompute || left.call.communicates ||
      right.call.communicates || left.has_result() != right.has_result()) {
    return 0;
  }
  const bool same_source = left.call.source == right.call.source && !left.call.source.empty();
  const int place =
      (same_source ? kSameSource : 0) + (left.call.module == right.call.module ? kSameModule : 0);
  if (!left.has_result()) {
    return kNoResult + place;
  }
  return kSameName + shape_score(left, right) + size_score(left, right) + place;
}

// Pairs `left` with `right` in order, so that the sum of scores is largest.
void pair_in_order(const OperatorSequence& reference,
                   const Positions& left,
                   const OperatorSequence& other,
                   const Positions& right,
                   Partners& partners) {
  const std::size_t width = right.size() + 1;
  std::vector<int> best((left.size() + 1) * width, 0);  // of what is left from here on
  const auto of = [&](std::size_t i, std::size_t j) -> int& { return best[i * width + j]; };
  const auto score_at = [&](std::size_t i, std::size_t j) {
    return score(reference.operators[left[i]], other.operators[right[j]]);
  };
  for (std::size_t i = left.size(); i-- > 0;) {
    for (std::size_t j = right.size(); j-- > 0;) {
      const int pair = score_at(i, j);
      of(i, j) = std::max({of(i + 1, j), of(i, j + 1), pair > 0 ? pair + of(i + 1, j + 1) : 0});
    }
  }
  std::size_t i = 0;
  std::size_t j = 0;
  while (i < left.size() && j < right.size()) {
    const int pair = score_at(i, j);
    if (pair > 0 && of(i, j) == pair + of(i + 1, j + 1)) {
      partners[right[j++]] = left[i++];
    } else if (of(i, j) == of(i + 1, j)) {
      ++i;
    } else {
      ++j;
    }
  }
}

Positions forward_of(const OperatorSequence& sequence) {
  Positions positions;
  for (std::size_t i = 0; i < sequence.operators.size(); ++i) {
    if (!sequence.operators[i].call.backward) {
      positions.push_back(i);
    }
  }
  return positions;
}

// Backward operators by their forward operator.
std::map<std::size_t, Positions> backward_of(const OperatorSequence& sequence) {
  std::map<std::size_t, Positions> positions;
  for (std::size_t i = 0; i < sequence.operators.size(); ++i) {
    if (const auto forward = sequence.operators[i].call.forward) {
      positions[*forward].push_back(i);
    }
  }
  return positions;
}

}  // namespace

std::vector<std::optional<std::size_t>> align(const OperatorSequence& reference,
                                              const OperatorSequence& other) {
  Partners partners(other.operators.size());
  pair_in_order(reference, forward_of(reference), other, forward_of(other), partners);
  const auto of_reference = backward_of(reference);
  for (const auto& [forward, positions] : backward_of(other)) {
    const auto left =
        partners[forward] ? of_reference.find(*partners[forward]) : of_reference.end();
    if (left != of_reference.end()) {
      pair_in_order(reference, left->second, other, positions, partners);
    }
  }
  return partners;
}

}  // namespace ttrace
