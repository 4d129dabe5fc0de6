// The FP8 codes of an operand, got back from its values and its scales, and held against the
// reference's.
//
//   code = the number of the format nearest to value / scale
//
// A value is code x scale, rounded to the type that it is stored in. Of BF16 that is off by 2^-9 of
// it at most, while numbers of E4M3 are 1/15 of one another apart and more, so that the code is
// exactly the one the program had. A quotient that is farther than 2^-8 from every number of a
// format is none of it. Formats are told by that: a side has E5M2 where all of its quotients are
// numbers of E5M2, else E4M3; where they are numbers of both (a few codes, all zeros) it has the
// format of the other side, if that one leaves no doubt.
//
// Codes are equal in bits where candidate's = reference's once a power of two between the two
// scales is taken out, block by block: floating-point numbers keep their mantissa then. Blocks need
// no declaration: along a dimension of n elements with b scales a block is 1, 32 or 128 long, the
// first with ceil(n / b) blocks, else n / b.
//
// Sources: Micikevicius et al., "FP8 formats for deep learning" (2022), for the formats; blocks of
// 32: OCP "Microscaling formats (MX)" 1.0; of 128 and 128 x 128: TransformerEngine.
//
// Thread-safety: free functions without shared state.
#pragma once

#include "analysis/findings/check.h"
#include "analysis/findings/codes.h"
#include "trace/merge/merge.h"

#include <ttrace/element_type.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ttrace {

// An operand beside its scales; whole logical tensors.
struct Quantised {
  const MergeResult& values;
  const MergeResult& scales;
};

// Returns nothing if shapes differ, blocks cannot be told, or one of the two sides has values that
// are codes of neither format.
[[nodiscard]] std::optional<CodesComparison> compare_codes(const Quantised& reference,
                                                           const Quantised& candidate);

// Elements along every dimension that share a scale; nothing if `scales` fits no blocks of
// `values`. A single number is of all elements.
[[nodiscard]] std::optional<std::vector<std::int64_t>> block_sizes(
    const std::vector<std::int64_t>& values, const std::vector<std::int64_t>& scales);

// Whether the candidate's scales lose nothing: all of them are the reference's times a power of
// two, in the same format, and no more codes are saturated or zero than the reference's, but for 1
// of 1000 elements.
[[nodiscard]] bool keep_codes(const CodesComparison& codes);

// Fails where the two sides hold numbers of different formats.
[[nodiscard]] Check format_check(const CodesComparison& codes);

}  // namespace ttrace
