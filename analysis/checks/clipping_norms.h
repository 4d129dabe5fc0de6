// How far the norm that gradients are clipped by may be off in the candidate, which moments have as
// a factor in common.
//
// Programs add the squares of all N gradients up in F32, each over its own parts and in its own
// order: a sum of N squares, one after the other, is off by u sqrt(N / 3) of itself, and the norm
// by half of that, with u one rounding of F32 (2.5e-8: 1e-5 for two million gradients). Where
// both sides have recorded a norm, scalars of Role::kGradientNorm, it is known how far they are
// apart, and only that is granted, as long as it is not more.
//
// Thread-safety: immutable.
#pragma once

#include "trace/file/trace_reader.h"

#include <cstdint>
#include <map>

namespace ttrace {

class ClippingNorms {
 public:
  // `forced`: what norms are of the candidate's own gradients. Its main gradients are counted.
  ClippingNorms(const Trace& candidate, const Trace& forced);

  // Relative, of the step's norm; 0 for a step without main gradients.
  [[nodiscard]] double rounding(std::int64_t step) const;

 private:
  std::map<std::int64_t, double> by_step_;
};

}  // namespace ttrace
