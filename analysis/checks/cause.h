// What was seen in one tensor, in one sentence with its numbers.
#pragma once

#include "analysis/bounds/bounds.h"
#include "analysis/findings/report.h"
#include "trace/merge/merge.h"

#include <ttrace/element_type.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace ttrace {

// One thing that is wrong with a tensor; a tensor may show several.
struct Observation {
  Symptom symptom = Symptom::kNone;
  std::string sentence;
  std::vector<int> ranks;  // empty: all that hold the tensor
};

[[nodiscard]] Symptom symptom_of(MergeDefect defect);

// Row-major tensors of one logical shape.
struct TensorPair {
  std::span<const std::int64_t> shape;
  ElementType reference_type = ElementType::kF32;
  const void* reference = nullptr;
  ElementType candidate_type = ElementType::kF32;
  const void* candidate = nullptr;
};

// Points into both. Requires: whole tensors of one shape.
[[nodiscard]] TensorPair pair_of(const MergeResult& reference, const MergeResult& candidate);

// NaN and Inf that the two sides do not have at the same places, in the same sign.
[[nodiscard]] std::optional<Observation> nonfinite_difference(const TensorPair& pair);

// For an error beyond its bound: unequal where equality was demanded, a factor where
// candidate = alpha x reference explains it, else its size.
[[nodiscard]] Observation beyond_bound(const Comparison& comparison, const Bound& bound);

// For an error that the tensor's own operators have made.
[[nodiscard]] Observation operator_error(const OperatorResidual& residual);

// For a tensor that is too far from the golden pass, or too near to it; `precision` is what both
// programs say that they compute in.
[[nodiscard]] Observation golden_error(const GoldenComparison& golden,
                                       const std::string& precision);

// For a tensor that follows from small integers without a rounding.
[[nodiscard]] Observation not_exact(const TensorId& id, const Comparison& comparison);

// For an operand whose codes are numbers of another format than the reference's.
[[nodiscard]] Observation formats_differ(const CodesComparison& codes);

// For a tensor that is within its bound as a whole.
[[nodiscard]] Observation beyond_slice_bound(const SliceComparison& slice);
[[nodiscard]] Observation beyond_factor_bound(const FactorComparison& factor);

// For a tensor of logical `shape` with elements beyond a tolerance that the user asked for.
[[nodiscard]] Observation beyond_tolerance(const ToleranceCheck& check,
                                           std::span<const std::int64_t> shape);

}  // namespace ttrace
