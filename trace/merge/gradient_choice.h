// Where programs divide gradients: at the loss, or at the main gradients.
//
// Two right programs may differ in that, so that all gradients of a backward are one multiple of
// the reference's, while the main gradients are equal. Nobody declares such a factor; programs that
// do pass it as the micro-batch's gradient scale. It is a choice, and no error, if these hold:
//
// - every gradient of an activation that is looked at, up to kLooks of a rank and micro-batch, the
//   one nearest to the loss first, is c = a r with one a for all, up to 10 % of ||c||;
// - |a - 1| is more than 1 %;
// - every main gradient of the step is the reference's: its factor is 1 within 2 % and within a
//   quarter of |a - 1|, and the rest at most 32 roundings, and at least 0.01 %, of its norm. If
//   factors differ, the rest is also at most a fifth of their spread. Whether it is within its
//   bound is for the comparison to say.
//
// Ranks may have factors of their own (each divides by its own number of tokens), but those that
// differ by no more than a rounding are one: the errors of a backward are not independent, so that
// the factors of ranks that hold the same gradients differ more than their standard errors. `a` is
// the fraction with the smallest denominator within what the numbers allow.
//
// Thread-safety: a free function without shared state.
#pragma once

#include "trace/file/trace_reader.h"

#include <cstdint>
#include <vector>

namespace ttrace {

// candidate = factor x reference, in all gradients of a rank's micro-batch.
struct GradientChoice {
  std::int64_t step = 0;
  std::int64_t microbatch = 0;
  int rank = 0;
  double factor = 1.0;
};

// Takes such factors out of the scales of `candidate`, and returns them, ascending by step,
// micro-batch and rank.
std::vector<GradientChoice> settle_gradient_choices(const Trace& reference, Trace& candidate);

}  // namespace ttrace
