// Judges one tensor: structure first (T0), then its error against its bound.
//
// Thread-safety: Judge is immutable; judge() may run in any number of threads.
#pragma once

#include "analysis/align/matching.h"
#include "analysis/align/model_vocabulary.h"
#include "analysis/bounds/bounds.h"
#include "analysis/bounds/tolerance.h"
#include "analysis/checks/cause.h"
#include "analysis/checks/exact_check.h"
#include "analysis/checks/golden_check.h"
#include "analysis/checks/operator_check.h"
#include "analysis/checks/self_check.h"
#include "analysis/findings/report.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <vector>

namespace ttrace {

// Steps that were interrupted while they were written: what lacks there is no finding.
struct Interruptions {
  std::set<std::int64_t> reference;
  std::set<std::int64_t> candidate;
};

// What other passes say of a tensor; null where there are none.
struct OtherPasses {
  const OperatorCheck* operators = nullptr;
  const GoldenCheck* golden = nullptr;
  const ExactCheck* exact = nullptr;  // takes the place of bounds
};

class Judge {
 public:
  // Keeps references. `same_precision`: element types must then be equal on both sides.
  Judge(std::span<const Match> matches,
        const Bounds& bounds,
        bool same_precision,
        Interruptions interruptions = {},
        Heads heads = {},
        const OtherPasses& others = {})
      : matches_(matches),
        bounds_(bounds),
        self_check_(matches, interruptions.candidate),
        same_precision_(same_precision),
        interruptions_(std::move(interruptions)),
        heads_(std::move(heads)),
        others_(others) {}

  // Whether a tensor gets a verdict; see self_check.h for those that do not.
  [[nodiscard]] bool judges(std::size_t index) const {
    return !SelfCheck::concerns(matches_[index].id.kind) || self_check_.is_subject(index);
  }
  // Number of tensors that get one.
  [[nodiscard]] std::size_t count() const;
  // Requires: judges(index). `tolerance`, where the user asked for one, stands in for the bound.
  // Throws UsageError where the reference contradicts itself: it is what the candidate is held
  // against.
  [[nodiscard]] TensorVerdict judge(std::size_t index,
                                    const std::optional<Tolerance>& tolerance = {}) const;

 private:
  [[nodiscard]] TensorVerdict judge_pair(const Match& match,
                                         const std::optional<Tolerance>& tolerance) const;
  [[nodiscard]] TensorVerdict judge_recomputed(const Match& match) const;
  // Of an operand whose scale was recorded, or the other way round; completes `verdict` and adds
  // what was seen. Takes back what was seen of a scale that loses nothing.
  void compare_operand(const Match& match,
                       const MergeResult& reference,
                       const MergeResult& candidate,
                       TensorVerdict& verdict,
                       std::vector<Observation>& observations) const;
  void compare_scale(const Match& match,
                     TensorVerdict& verdict,
                     std::vector<Observation>& observations) const;
  // Choices of experts of equal logical shapes.
  void compare_routing(const Match& match,
                       const MergeResult& reference,
                       const MergeResult& candidate,
                       TensorVerdict& verdict,
                       std::vector<Observation>& observations) const;
  // A tensor that one side lacks.
  [[nodiscard]] TensorVerdict missing(const Match& match) const;
  // Of equal logical shapes; completes `verdict` and adds what was seen.
  void compare_values(const Match& match,
                      const MergeResult& reference,
                      const MergeResult& candidate,
                      TensorVerdict& verdict,
                      std::vector<Observation>& observations) const;

  // With dyadic inputs, instead.
  void compare_exactly(const Match& match,
                       const MergeResult& reference,
                       const MergeResult& candidate,
                       TensorVerdict& verdict,
                       std::vector<Observation>& observations) const;
  // Against the golden pass, of a tensor that was compared; adds what was seen.
  void compare_with_golden(const Match& match,
                           const MergeResult& reference,
                           const MergeResult& candidate,
                           TensorVerdict& verdict,
                           std::vector<Observation>& observations) const;
  // The same in its slices and its factor. Requires: the tensor's bound came from noise.
  void compare_parts(const Match& match,
                     const Judged& judged,
                     const TensorPair& pair,
                     Comparison& comparison) const;

  std::span<const Match> matches_;
  const Bounds& bounds_;
  SelfCheck self_check_;
  bool same_precision_;
  Interruptions interruptions_;
  Heads heads_;
  OtherPasses others_;
};

}  // namespace ttrace
