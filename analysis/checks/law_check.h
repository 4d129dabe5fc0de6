// Laws: what the numbers of one trace say of one another, whatever the values are. No reference, no
// forced pass and no gather takes part.
//
// A module with a matrix W [o, i] that returns y = x W^T + b obeys
//
//   output:           core(y)  = left(x) left(W)^T + (P 1) (P b)^T
//   input gradient:   core(gx) = the sum over all takers of x of left(gy) right(W)
//   weight gradient:  core(gW) = the sum over the calls of right(gy)^T right(x)
//
// with the projections of trace/sums/projection.h; quantised products are held against the operands
// that they consumed. Every parameter obeys
//
//   reduced gradient: core(main_grad) = a x the sum over micro-batches of core(param_grad)
//
// with one factor a for all parameters of a step, and the norm by which gradients are clipped is
//
//   gradient norm:    the root of the sum of all ||main_grad||^2
//
// Ranks that hold the same part of a tensor hold the same bits (copies).
//
// What is left on one side estimates the error of the tensor, and is held against
//
//   scale^2 = u^2 ||c||^2 + what the sums over ranks round (rank_sums.h)
//
// as the check of operators on the candidate's own values does (operator_check.h). The largest
// R = residual / scale of 180 right runs, 80 of which came after the limit, was 1.7; the limit is
// over twice that. A module that does more than this product, such as a fused norm, does not
// obey; whether it should, a reference tells: laws that hold there are in force, with the limit of
// twice what they have there.
//
// Thread-safety: values and free functions.
#pragma once

#include "analysis/checks/law.h"
#include "analysis/findings/verdict.h"
#include "trace/file/trace_reader.h"

#include <cstddef>
#include <span>
#include <vector>

namespace ttrace {

// The laws of a trace, in the order of execution. Laws of tensors that were not recorded, or whose
// parts make no tensor, are left out. Throws FormatError for damaged files.
[[nodiscard]] std::vector<Law> laws_of(const Trace& trace);

struct LawsInForce {
  std::vector<Law> laws;
  std::size_t left_out = 0;  // that the reference does not obey, or does not have
};

// Of the laws of a trace, those that the reference obeys, with its limits and its factor of reduced
// gradients, and those of copies, which a reference on one device does not have. `reference`: its
// laws, of the same steps.
[[nodiscard]] LawsInForce laws_of(const Trace& trace, std::span<const Law> reference);

// Adds the check kLaw to tensors of the candidate of which the reference obeys a law, but for those
// of copies and norms, which have checks of their own.
void check_laws(const Trace& reference, const Trace& candidate, std::span<TensorVerdict> tensors);

}  // namespace ttrace
