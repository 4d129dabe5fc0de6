// Bugs of ring attention.
#include "ring_faults.h"

#include "../ring_attention.h"
#include "bug_tables.h"

#include <ATen/ATen.h>

#include <cmath>

namespace megatron_mini::faults {

at::Tensor with_heads_and_rows_swapped(const at::Tensor& key_value) {
  return key_value.transpose(2, 4).contiguous().view(key_value.sizes());
}

at::Tensor rounded_to_bits(const at::Tensor& tensor, int mantissa_bits) {
  const auto [fraction, exponent] = at::frexp(tensor);  // fraction in [1/2, 1)
  const double unit = std::ldexp(1.0, mantissa_bits + 1);
  return at::ldexp((fraction * unit).round() / unit, exponent);
}

namespace {

constexpr char kRing[] = "decoder.layers.1.self_attention.core_attention";

// Logarithms of denominators are rounded before they are merged.
class MergesInLowPrecision : public RingSteps {
 public:
  explicit MergesInLowPrecision(int mantissa_bits) : mantissa_bits_(mantissa_bits) {}
  Merge merge(const at::Tensor& total, const at::Tensor& part) const override {
    return RingSteps::merge(rounded_to_bits(total, mantissa_bits_),
                            rounded_to_bits(part, mantissa_bits_));
  }

 private:
  int mantissa_bits_;
};

// Backward takes the denominators of a block's keys alone.
class LeavesDenominatorsUnmerged : public RingSteps {
 public:
  at::Tensor log_denominator(const at::Tensor& scores,
                             const at::Tensor& /*merged*/) const override {
    const at::Tensor own = scores.logsumexp(-1, /*keepdim=*/true);
    return own.masked_fill(own.isinf(), 0.0);
  }
};

// Other ranks' keys and values are read in another order of dimensions.
class SwapsHeadsAndRows : public RingSteps {
 public:
  at::Tensor received(const at::Tensor& key_value, bool own) const override {
    return own ? key_value : with_heads_and_rows_swapped(key_value);
  }
};

// Other ranks' blocks are masked like a rank's own.
class MasksEveryBlock : public RingSteps {
 public:
  bool is_masked(bool /*own*/) const override { return true; }
};

// Outputs are merged with equal weights.
class AveragesOutputs : public RingSteps {
 public:
  Merge merge(const at::Tensor& total, const at::Tensor& part) const override {
    Merge merged = RingSteps::merge(total, part);
    merged.weight_of_total = at::full_like(total, 0.5);
    merged.weight_of_part = at::full_like(part, 0.5);
    return merged;
  }
};

// Gradients of keys and values stay one rank short of their owner.
class LosesLastHop : public RingSteps {
 public:
  at::Tensor bring_home(const at::Tensor& gradient, const Group& /*group*/) const override {
    return gradient;
  }
};

// Backward takes the dropout mask of the keys that come next.
class ShiftsMask : public RingSteps {
 public:
  int mask_of(int source, int ranks) const override { return (source + ranks - 1) % ranks; }
};

constexpr Bug kRingBugs[] = {
    {"ring-merge-in-low-precision",
     [](Parts& parts, const Size& size) {
       constexpr int kBf16Bits = 7;
       replace<MergesInLowPrecision>(parts.ring, static_cast<int>(size(kBf16Bits)));
     }},
    {"ring-backward-unmerged-denominator", everywhere<&Parts::ring, LeavesDenominatorsUnmerged>},
    {"ring-swaps-heads-and-rows", only_at<&Parts::ring, SwapsHeadsAndRows, kRing>},
    {"ring-diagonal-mask-everywhere", only_at<&Parts::ring, MasksEveryBlock, kRing>},
    {"ring-outputs-averaged", only_at<&Parts::ring, AveragesOutputs, kRing>},
    {"ring-last-hop-lost", only_at<&Parts::ring, LosesLastHop, kRing>},
    {"ring-dropout-mask", everywhere<&Parts::ring, ShiftsMask>},
};

}  // namespace

std::span<const Bug> ring_bugs() {
  return kRingBugs;
}

}  // namespace megatron_mini::faults
