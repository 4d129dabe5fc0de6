// T2, and T0 where values must be equal: is the error within its bound, as a whole, in every part
// and along the reference?
//
// Thread-safety: free functions without shared state.
#pragma once

#include "analysis/align/matching.h"
#include "analysis/align/tensor_pair.h"
#include "analysis/bounds/bounds.h"
#include "analysis/bounds/tolerance.h"
#include "analysis/checks/slices.h"
#include "analysis/findings/verdict.h"
#include "trace/merge/merge.h"
#include "trace/sums/moments.h"
#include "trace/sums/statistics.h"

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace ttrace {

// Requires: whole tensors of one shape.
[[nodiscard]] Statistics statistics_of(const MergeResult& reference, const MergeResult& candidate);
// Of both against one reference, whose elements are read once.
[[nodiscard]] std::pair<Statistics, Statistics> statistics_of(const MergeResult& reference,
                                                              const MergeResult& first,
                                                              const MergeResult& second);

// For a walk over several tensors. Points into both.
[[nodiscard]] SummedPair summed(const MergeResult& reference,
                                const MergeResult& other,
                                bool with_slices = false);

// Whether both are whole tensors that hold the same elements.
[[nodiscard]] bool are_alike(const MergeResult& expected, const MergeResult& found);
// Returns nothing if they are not.
[[nodiscard]] std::optional<Statistics> statistics_where_alike(const MergeResult& expected,
                                                               const MergeResult& found);

[[nodiscard]] Comparison comparison_of(const Statistics& statistics,
                                       std::span<const std::int64_t> shape);

// How many elements are NaN on both sides.
[[nodiscard]] std::int64_t nan_on_both(const TensorPair& pair);
// Positions of the elements that are NaN, Inf, -Inf or finite on one side and another of these on
// the other, in ascending order.
[[nodiscard]] std::vector<std::int64_t> unlike_in_finiteness(const TensorPair& pair);

// NaN and Inf that the two sides do not have at the same places, in the same sign. The term
// kError of a failed check is ||c - r|| with every Inf of F16 that one side alone has as the
// smallest number that overflows, 65520; Inf where something else is not finite.
[[nodiscard]] std::vector<Check> finite_checks(const TensorPair& pair,
                                               const Statistics& statistics,
                                               const Match& match);

// Ranks that have elements which are not finite.
[[nodiscard]] std::vector<int> holders_of_nonfinite(std::span<const Shard> shards);

// The error of the whole tensor against its bound: kExact where it must be equal, else kWhole.
[[nodiscard]] Check whole_check(const Comparison& comparison, const Bound& bound);

// Its worst part and its factor, where their noise is known. Requires: `bound` came from noise.
[[nodiscard]] std::vector<Check> part_checks(const Bounds& bounds,
                                             const Judged& judged,
                                             const TensorPair& pair,
                                             const Slices& slices,
                                             std::span<const Shard> candidate,
                                             std::int64_t head,
                                             PartNames names = {});

// Element by element under a tolerance that the user asked for.
[[nodiscard]] Check tolerance_check(const Tolerance& tolerance,
                                    const TensorPair& pair,
                                    const Comparison& comparison);

// Values that small integers make without a rounding; T3.
[[nodiscard]] Check dyadic_check(const TensorId& id, const Comparison& comparison);

}  // namespace ttrace
