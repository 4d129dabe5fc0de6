#include "faulty_ring.h"

#include <ATen/ATen.h>

#include <cmath>

namespace megatron_mini {

RingBug ring_bug(const Bugs& bugs, const std::string& path) {
  constexpr int kBf16Bits = 7;
  if (bugs.on("ring-merge-in-low-precision")) {
    return {.fault = RingFault::kMergedInLowPrecision,
            .mantissa_bits = static_cast<int>(bugs.size(kBf16Bits))};
  }
  if (bugs.on("ring-backward-unmerged-denominator")) {
    return {.fault = RingFault::kUnmergedDenominator};
  }
  if (path != "decoder.layers.1.self_attention") {
    return {};
  }
  if (bugs.on("ring-swaps-heads-and-rows")) {
    return {.fault = RingFault::kHeadsAndRowsSwapped};
  }
  if (bugs.on("ring-diagonal-mask-everywhere")) {
    return {.fault = RingFault::kDiagonalMaskEverywhere};
  }
  if (bugs.on("ring-outputs-averaged")) {
    return {.fault = RingFault::kOutputsAveraged};
  }
  if (bugs.on("ring-last-hop-lost")) {
    return {.fault = RingFault::kLastHopLost};
  }
  return {};
}

at::Tensor with_heads_and_rows_swapped(const at::Tensor& key_value) {
  return key_value.transpose(2, 4).contiguous().view(key_value.sizes());
}

at::Tensor rounded_to_bits(const at::Tensor& tensor, int mantissa_bits) {
  const auto [fraction, exponent] = at::frexp(tensor);  // fraction in [1/2, 1)
  const double unit = std::ldexp(1.0, mantissa_bits + 1);
  return at::ldexp((fraction * unit).round() / unit, exponent);
}

}  // namespace megatron_mini
