// The changes that a noise pass makes to values: last-bit flips, order-of-summation noise, and the
// order in which samples are fed.
//
// The random numbers are a counter-based hash of (seed, element), so that a pass can be repeated
// exactly and torch's generator is never touched.
//
// Source: the two distributions were measured on transformers (bounds from such noise reruns cover
// clean tensor-, sequence- and data-parallel runs): single flips for low-precision results, and
// +-6 units for F32 and F64 contractions, whose error comes from the order of summation.
//
// Thread-safety: free functions without shared state.
#pragma once

#include "trace/kernels/noise.h"

#include <ttrace/element_type.h>

#include <cstdint>
#include <vector>

namespace ttrace {

// Moves each non-zero finite element of a floating type: by one unit of its last place up or down
// with probability 1/8 each, or (F32 and F64 reductions) uniformly by -6 to +6 units. Zeros,
// infinities, NaN, and what would leave the finite range or reach zero stay as they are. E8M0 stays
// as it is: it holds scales, powers of two that no rounding made.
void perturb(
    ElementType type, NoiseClass noise, std::uint64_t seed, std::int64_t count, void* values);

// A permutation of 0..samples-1; not the identity where there are at least two.
[[nodiscard]] std::vector<std::int64_t> sample_order(std::int64_t samples, std::uint64_t seed);

}  // namespace ttrace
