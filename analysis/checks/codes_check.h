// Recovers the FP8 or FP4 codes of an operand from its values and its scales, and compares them
// with the reference's.
//
//   code = the number of the format nearest to value / scale
//
// A value is code x scale, rounded to the type in which it is stored. In BF16 this rounding is at
// most 2^-8 of the value, while numbers of E4M3 are at least 1/15 of one another apart. So the
// recovered code is exactly the one that the program had. A quotient that is farther than 2^-8 from
// every number of a format does not belong to it, and this decides the format: a side has E2M1
// (FP4) if all of its quotients are numbers of E2M1, E5M2 if all are numbers of E5M2, else E4M3. If
// they are numbers of several (a few codes, all zeros), it has a format that both sides may have.
//
// Codes are equal in bits if the candidate's equal the reference's after a power of two between the
// two scales is taken out, block by block, because floating-point numbers then keep their mantissa.
// Blocks need no declaration: along a dimension of n elements with b scales, a block is 1, 16, 32
// or 128 long, the first of these with ceil(n / b) blocks, else n / b.
//
// Sources: Micikevicius et al., "FP8 formats for deep learning" (2022), for the formats; OCP
// "Microscaling formats (MX)" 1.0 for E2M1 and blocks of 32; NVFP4 for blocks of 16;
// TransformerEngine for blocks of 128 and 128 x 128.
//
// Thread-safety: free functions without shared state.
#pragma once

#include "analysis/align/matching.h"
#include "analysis/findings/check.h"
#include "analysis/findings/codes.h"
#include "trace/merge/merge.h"

#include <ttrace/element_type.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ttrace {

// An operand and its scales, as whole logical tensors.
struct Quantised {
  const MergeResult& values;
  const MergeResult& scales;
};

// Returns nothing if shapes differ, the blocks are ambiguous, or one of the two sides has values
// that are codes of neither format.
[[nodiscard]] std::optional<CodesComparison> compare_codes(const Quantised& reference,
                                                           const Quantised& candidate);

// The codes of an operand's values; nothing if a side has no scale, or no codes.
[[nodiscard]] std::optional<CodesComparison> codes_of(const MergeResult& reference,
                                                      const MergeResult& candidate,
                                                      const Match& scale);

// Elements along every dimension that share a scale; nothing if `scales` fits no blocks of
// `values`. A single number is of all elements.
[[nodiscard]] std::optional<std::vector<std::int64_t>> block_sizes(
    const std::vector<std::int64_t>& values, const std::vector<std::int64_t>& scales);

// Whether the candidate's scales lose nothing: all of them are the reference's times a power of
// two, in the same format, and apart from 1 of 1000 elements no more codes are saturated or zero
// than in the reference.
[[nodiscard]] bool keep_codes(const CodesComparison& codes);

// Fails where the two sides hold numbers of different formats.
[[nodiscard]] Check format_check(const CodesComparison& codes);

}  // namespace ttrace
