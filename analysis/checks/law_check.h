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
// R = residual / scale of 40 clean runs of random models and of 60 others was 2.2; the limit is
// nearly twice that. A module that does more than this product, such as a fused norm, does not
// obey; whether it should, a reference tells: laws that hold there are in force, with the limit of
// twice what they have there.
//
// Thread-safety: values and free functions.
#pragma once

#include "trace/file/trace_reader.h"

#include <ttrace/tensor_id.h>

#include <cstdint>
#include <string_view>
#include <vector>

namespace ttrace {

enum class LawKind : std::uint8_t {
  kOutput,
  kInputGradient,
  kWeightGradient,
  kReducedGradient,
  kGradientNorm,
  kCopies
};

// "output", "input gradient", "weight gradient", "reduced gradient", "gradient norm", "copies".
[[nodiscard]] std::string_view name_of(LawKind kind);
// "input x weight".
[[nodiscard]] std::string_view formula_of(LawKind kind);

inline constexpr double kLawLimit = 4.0;  // of R, without a reference

// A law at one tensor.
struct Law {
  LawKind kind = LawKind::kOutput;
  TensorId result;        // of what it speaks
  double residual = 0.0;  // estimates ||result - what it should be||
  double scale = 0.0;     // round-off
  double norm = 0.0;      // ||result||
  double factor = 1.0;    // of a reduced gradient: a
  double limit = kLawLimit;
  std::vector<int> ranks = {};  // of copies: those that differ from the lowest one, and that one

  // R; Inf of an error where nothing rounds.
  [[nodiscard]] double value() const;
  [[nodiscard]] bool holds() const { return !(value() > limit); }
};

// The laws of a trace, in the order of execution. Laws of tensors that were not recorded, or whose
// parts make no tensor, are left out. Throws FormatError for damaged files.
[[nodiscard]] std::vector<Law> laws_of(const Trace& trace);

// Of `laws`, those that the reference obeys, with its limits, and those of copies. A factor of
// reduced gradients must be the reference's.
[[nodiscard]] std::vector<Law> laws_in_force(std::vector<Law> laws,
                                             const std::vector<Law>& reference);

}  // namespace ttrace
