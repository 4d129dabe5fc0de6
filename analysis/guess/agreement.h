// Whether two activations are the same one but for round-off and arrangement.
//
// Thread-safety: one thread at a time; comparisons are made once and remembered.
#pragma once

#include "analysis/guess/pairings.h"

#include <map>
#include <optional>
#include <set>
#include <utility>

namespace ttrace {

// Of norms whose squares are added up in another order.
inline constexpr double kOtherOrder = 1e-9;

enum class Likeness : std::uint8_t { kAgree, kDiffer, kUnknown };

struct ActivationMatch {
  Likeness likeness = Likeness::kUnknown;
  Arrangement how = {};
  double error = 0.0;  // relative
};

class Agreements {
 public:
  // Keeps a reference.
  explicit Agreements(const GuessState& state) : state_(state) {}

  // Unknown where one has no finite values, or is a constant.
  [[nodiscard]] ActivationMatch of(const TensorId& reference, const TensorId& candidate) const;

  // Whether both hold the same numbers, in any order: no arrangement can express that patches of an
  // image are rows of a matrix.
  [[nodiscard]] bool have_same_numbers(const TensorId& reference, const TensorId& candidate) const;

  // The arrangement that the shapes allow; of several one that agreeing tensors have, then the
  // same, then nothing.
  [[nodiscard]] std::optional<Arrangement> by_shape(const Unit& reference,
                                                    const Unit& candidate) const;

 private:
  [[nodiscard]] ActivationMatch compared(const TensorId& reference,
                                         const TensorId& candidate) const;

  const GuessState& state_;
  mutable std::map<std::pair<TensorId, TensorId>, ActivationMatch> known_;
  mutable std::set<Arrangement> seen_;  // of tensors that agree
};

}  // namespace ttrace
