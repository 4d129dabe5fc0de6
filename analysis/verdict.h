// Judges one tensor: structure first (T0), then its error against its bound.
//
// Thread-safety: Judge is immutable; judge() may run in any number of threads.
#pragma once

#include "analysis/bounds.h"
#include "analysis/cause.h"
#include "analysis/matching.h"
#include "analysis/report.h"

#include <cstddef>
#include <span>
#include <vector>

namespace ttrace {

class Judge {
 public:
  // Keeps references. `same_precision`: element types must then be equal on both sides.
  Judge(std::span<const Match> matches, const Bounds& bounds, bool same_precision)
      : matches_(matches), bounds_(bounds), same_precision_(same_precision) {}

  // Throws UsageError where the reference contradicts itself: it is what the candidate is held
  // against.
  [[nodiscard]] TensorVerdict judge(std::size_t index) const;

 private:
  [[nodiscard]] TensorVerdict judge_pair(const Match& match) const;
  [[nodiscard]] TensorVerdict judge_recomputed(const Match& match) const;
  // Of equal logical shapes; completes `verdict` and adds what was seen.
  void compare_values(const Match& match,
                      const MergeResult& reference,
                      const MergeResult& candidate,
                      TensorVerdict& verdict,
                      std::vector<Observation>& observations) const;

  std::span<const Match> matches_;
  const Bounds& bounds_;
  bool same_precision_;
};

}  // namespace ttrace
