// Gradients that are a multiple of the reference's in the candidate, as with a loss of mean over
// three ranks, and the scales of their FP8 blocks, which are powers of two.
//
// Such a scale is the smallest power of two that is not below amax / (largest number of the
// format). It doubles somewhere between amax and 2 amax, so it follows a factor only if the factor
// is a power of two itself. With a loss of mean over three ranks, a rank's gradients are three
// times the reference's, but its scales are twice or four times the reference's, never three times.
// Both are right: codes of E4M3 and E5M2 are floating-point numbers, and such a choice does not
// make their roundings coarser.
//
// Thread-safety: free functions without shared state.
#pragma once

#include "trace/merge/merge.h"

#include <span>

namespace ttrace {

// The factor of the candidate's values of a tensor relative to the reference's. Requires: at least
// one shard on both sides.
[[nodiscard]] double factor_between(std::span<const Shard> reference,
                                    std::span<const Shard> candidate);
// A multiplication by such a number rounds nothing.
[[nodiscard]] bool is_power_of_two(double factor);

[[nodiscard]] bool are_powers_of_two(std::span<const Shard> reference,
                                     std::span<const Shard> candidate);
// Takes `factor` out of the candidate's powers of two: of the two that a scale of the reference's
// size may have become, c / g and 2 c / g with 1 < g < 2 the factor without its power of two, the
// one nearer to the reference's stays. Nothing happens where `factor` is a power of two.
// Requires: tensors of one shape.
void take_out_factor(double factor, const MergeResult& reference, MergeResult& candidate);

}  // namespace ttrace
