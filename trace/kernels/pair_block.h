// What compare() finds out about one block of a pair of tensors, and when a block needs more care.
#pragma once

#include "trace/base/host_device.h"
#include "trace/base/widen.h"
#include "trace/kernels/lane_sums.h"

#include <ttrace/element_type.h>

#include <cstdint>

namespace ttrace {

// A block's part of Statistics; positions are relative to the block. Sums are over elements finite
// on both sides.
struct PairBlock {
  LaneSums<double> sums;
  double max_difference;
  double max_reference;
  std::int64_t different;
  std::int64_t reference_nonfinite;
  std::int64_t candidate_nonfinite;
  std::int64_t first_nonfinite;  // -1 if there is none
  bool in_float;                 // the maximum difference is rounded to f32
};

TTRACE_KERNEL PairBlock empty_block() {
  PairBlock block{};
  block.first_nonfinite = -1;
  return block;
}

// Element types whose pairs are summed without widening: the first by number.
inline constexpr int kDirectTypes = static_cast<int>(ElementType::kBool) + 1;

TTRACE_KERNEL bool is_direct(ElementType type) {
  return static_cast<int>(type) < kDirectTypes;
}

// Whether such pairs are summed in f32 lanes.
TTRACE_KERNEL bool is_summed_in_float(ElementType type) {
  return type == ElementType::kF32 || type == ElementType::kF16 || type == ElementType::kBF16;
}

TTRACE_KERNEL PairBlock block_of(const BlockFigures& figures, bool in_float) {
  PairBlock block = empty_block();
  block.sums = figures.sums;
  block.max_difference = figures.max_difference;
  block.max_reference = figures.max_reference;
  block.different = figures.different;
  block.in_float = in_float;
  return block;
}

// Whether everything was finite and no square left the range of its type. Squares of a block whose
// largest magnitude is tiny come too near the smallest normal number (1e-38, 2e-308) for sums that
// are right to 1e-6, even where the processor flushes denormals to zero. The two functions say
// whether all bits of a side are zero.
template <class ReferenceIsZero, class CandidateIsZero>
TTRACE_KERNEL bool is_accurate(const PairBlock& block,
                               const ReferenceIsZero& reference_is_zero,
                               const CandidateIsZero& candidate_is_zero) {
  constexpr double kTinyFloat = 1e-14;
  constexpr double kTinyDouble = 1e-149;
  const double least = block.in_float ? kTinyFloat : kTinyDouble;
  return is_finite(block.sums.reference_squared) && is_finite(block.sums.candidate_squared) &&
         is_finite(block.sums.difference_squared) &&
         (block.different == 0 || block.max_difference >= least) &&
         (block.max_reference >= least || reference_is_zero()) &&
         (block.sums.candidate_squared >= least * least || candidate_is_zero());
}

// Adds one pair, the next by position; an element that is not finite is counted, but left out.
TTRACE_KERNEL void add_carefully(double r, double c, std::int64_t position, PairBlock& block) {
  const bool equal = r == c || (r != r && c != c);
  block.different += equal ? 0 : 1;
  if (is_finite(r) && is_finite(c)) {
    const double difference = c - r;
    const double distance = magnitude_of(difference);
    const double size = magnitude_of(r);
    block.sums.reference_squared += r * r;
    block.sums.candidate_squared += c * c;
    block.sums.product += r * c;
    block.sums.difference_squared += difference * difference;
    block.sums.difference += difference;
    block.max_difference = block.max_difference < distance ? distance : block.max_difference;
    block.max_reference = block.max_reference < size ? size : block.max_reference;
    return;
  }
  block.reference_nonfinite += is_finite(r) ? 0 : 1;
  block.candidate_nonfinite += is_finite(c) ? 0 : 1;
  if (!is_finite(c) && !equal && block.first_nonfinite < 0) {
    block.first_nonfinite = position;
  }
}

// Whether a pair has the block's largest difference, rounded as when the block was summed. (f32
// differences rounded to double first come out the same.)
TTRACE_KERNEL bool has_maximum(double r, double c, const PairBlock& block) {
  const double distance = magnitude_of(c - r);
  return block.max_difference ==
         (block.in_float ? static_cast<double>(static_cast<float>(distance)) : distance);
}

}  // namespace ttrace
