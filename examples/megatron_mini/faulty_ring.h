// Planted bugs of ring attention, and what its parts do with them.
//
// Thread-safety: values and free functions without shared state.
#pragma once

#include "bugs.h"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

namespace megatron_mini {

enum class RingFault : std::uint8_t {
  kNone,
  kHeadsAndRowsSwapped,  // keys and values of other ranks are read in another order of dimensions
  kDiagonalMaskEverywhere,  // other ranks' blocks are masked like a rank's own
  kMergedInLowPrecision,    // logarithms of denominators are rounded before they are merged
  kOutputsAveraged,         // outputs are merged with equal weights
  kUnmergedDenominator,     // backward has the denominators of a block's keys alone
  kLastHopLost,             // gradients of keys and values stay one rank short of their owner
};

struct RingBug {
  RingFault fault = RingFault::kNone;
  int mantissa_bits = 0;  // that kMergedInLowPrecision keeps

  [[nodiscard]] bool is(RingFault other) const { return fault == other; }
};

// The bug of the attention `path`.
[[nodiscard]] RingBug ring_bug(const Bugs& bugs, const std::string& path);

// [2, b, g, 1, s, d] of which the memory was written as [2, b, s, g, d], read as [2, b, g, s, d].
[[nodiscard]] at::Tensor with_heads_and_rows_swapped(const at::Tensor& key_value);

// Rounds to a mantissa of so many bits behind the leading one, to even; infinities stay.
[[nodiscard]] at::Tensor rounded_to_bits(const at::Tensor& tensor, int mantissa_bits);

}  // namespace megatron_mini
