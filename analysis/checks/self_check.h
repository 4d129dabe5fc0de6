// Checks that must hold within one run, whatever a reference did: a rank receives what another one
// sent, a collective returns what follows from its members' inputs, and ranks that hold the same
// part of a parameter begin with the same values.
//
// TTrace replaces start values that differ from the reference's, and keeps them (Kind::kStart): a
// rank without such a record has begun with the reference's.
//
// Messages and moved values (all-gather, all-to-all, broadcast, maxima) must be equal in every bit,
// compared as logical tensors. A sum of n numbers of a type with rounding error u may have been
// taken in any order:
//
//   |y - sum x_i| <= g sum |x_i|,  g = k u / (1 - k u),  k = n - 1, for averages n + 1
//
// We compute the sum in extended precision here.
//
// Source of the bound: Higham, Accuracy and Stability of Numerical Algorithms, section 4.2. The two
// further roundings of an average are those of 1/n and of its product.
//
// Thread-safety: immutable; judge() may run in any number of threads.
#pragma once

#include "analysis/align/index_by_id.h"
#include "analysis/align/matching.h"
#include "analysis/bounds/allowance.h"
#include "analysis/findings/verdict.h"

#include <ttrace/tensor_id.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <span>

namespace ttrace {

class SelfCheck {
 public:
  // Keeps a reference. In steps of `interrupted` what is missing is not a finding.
  SelfCheck(std::span<const Match> matches,
            std::set<std::int64_t> interrupted,
            const Allowances& allowances);

  // Whether tensors of this kind are judged here. The layout decides which of them exist, so no
  // reference has them.
  [[nodiscard]] static bool concerns(Kind kind);
  // Whether such a tensor gets a verdict of its own; the others are evidence for one that does.
  [[nodiscard]] bool is_subject(std::size_t index) const;
  // Requires: is_subject(index).
  [[nodiscard]] TensorVerdict judge(std::size_t index) const;

 private:
  // The candidate's records of the same id with another kind and slot; null if there are none.
  [[nodiscard]] const Match* record_near(const Match& match, Kind kind, int slot) const;
  [[nodiscard]] Check check_message(const Match& match) const;
  [[nodiscard]] Check check_start(const Match& match) const;
  [[nodiscard]] Check check_collective(const Match& output) const;

  std::span<const Match> matches_;
  std::set<std::int64_t> interrupted_;
  bool any_order_;  // sums may be taken in
  IndexById<const Match> by_id_;
};

}  // namespace ttrace
