// Whether an operator computes with whole numbers alone, so that its result is exact.
//
// Sums and products of whole numbers do not round as long as the format holds them: no layout and
// no kernel returns anything else, and noise has no place there. A program truncates such a result
// (`mask.sum().to(int)` counts tokens), and would lose a whole token by the smallest move.
//
// Thread-safety: call from any thread.
#pragma once

#include "hooks/nudge/operator_effects.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/record_function.h>

#include <functional>

namespace ttrace {

// What an operator reads.
struct WholeReads {
  bool are_whole = false;  // all that lies on the host
  double largest = 0.0;    // no sum of products of them is larger
  // Whether those on an accelerator are whole, too: one bool there, which nobody waits for.
  // Undefined where none lies there.
  at::Tensor on_device = {};
};

// Looks at the values, up to the first that is no whole number: call it before the operator runs,
// which may overwrite them. On accelerators it looks at few values, and at what is summed up.
// `is_blank`: whether nobody wrote to a tensor so far, so that an operator which writes to it does
// not read it (mv calls addmv_ with an empty tensor and a factor of 0).
[[nodiscard]] WholeReads whole_reads(const at::RecordFunction& function,
                                     const OperatorEffects& effects,
                                     const std::function<bool(const at::Tensor&)>& is_blank);

// Whether an operator of this class that reads whole numbers returned `result`, on the host,
// without rounding it.
[[nodiscard]] bool is_exact(const at::Tensor& result, NoiseClass noise, const WholeReads& reads);
// The same of a result on an accelerator: one bool there, or undefined for no.
[[nodiscard]] at::Tensor exact_on_device(const at::Tensor& result, const WholeReads& reads);

}  // namespace ttrace
