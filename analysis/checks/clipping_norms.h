// The allowed error of the candidate's clipping norm, which is a factor of all moments.
//
// Programs add the squares of all N gradients up in F32, each over its own parts and in its own
// order. A sum of N squares, one after the other, has a relative error of u sqrt(N / 3), and the
// norm has half of that, with u one rounding of F32 (2.5e-8: 1e-5 for two million gradients). If
// both sides recorded a norm (scalars of Role::kGradientNorm), their difference is known. Then only
// this difference is allowed, unless it is larger. Where the candidate's norm is a number of a
// lower type, the coefficient that gradients are multiplied by is rounded to that type as well,
// once.
//
// Thread-safety: immutable; free functions without shared state.
#pragma once

#include "trace/file/trace_reader.h"

#include <ttrace/element_type.h>

#include <cstdint>
#include <map>
#include <set>

namespace ttrace {

// torch takes the norm of gradients in their own type. Where that is lower than F32, and the norm
// is one of its numbers, it may be off by this share of it, two of the largest roundings to that
// type (2^-7 for BF16): of the norm of each tensor, and of the norm of these. 0 for other norms.
[[nodiscard]] double rounding_of_stored_norm(ElementType type, double norm);

class ClippingNorms {
 public:
  // `forced`: what norms are of the candidate's own gradients. Its main gradients are counted.
  ClippingNorms(const Trace& candidate, const Trace& forced);

  // Relative, of the step's norm; 0 for a step without main gradients.
  [[nodiscard]] double rounding(std::int64_t step) const;
  // Whether the forced passes took the norm of other gradients than the candidate, because elements
  // of some of these were not kept.
  [[nodiscard]] bool is_of_others(std::int64_t step) const { return of_others_.contains(step); }

 private:
  std::map<std::int64_t, double> by_step_;
  std::set<std::int64_t> of_others_;  // steps
};

}  // namespace ttrace
