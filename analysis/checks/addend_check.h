// T1 for gradients of vectors, addend by addend: does each rank add what its own rows give?
//
// If ranks have rows of their own (sequence and context parallelism), the gradient of a norm's
// weight or of a bias is a sum of one addend per rank. An error in one addend is small compared
// with the whole sum. But a rank's trace holds everything that its addend is made from, in exactly
// the bits that the kernel got: x, the module's input, and g, the gradient of its output. So we
// compute every addend again in FP64:
//
//   p_i = sum over rank i's rows of g                      (a bias)
//   p_i = sum over rank i's rows of g (x - m) / sqrt(v + epsilon)   (a norm's weight)
//
// Nothing declares which formula and epsilon apply. We pick the one whose sum over ranks is nearest
// to f (the forced pass's gradient in the higher precision), within 1 %. If none fits, or if a rank
// has no such records, addends are not checked. A recorded addend c_i has the scale
//
//   scale_i^2 = u^2 max(||c_i||, ||p_i||)^2 + t_i (max(0, ||n - f||^2 - 2 u^2 ||c||^2) + d^2)
//
// u is the relative error of one rounding of its type. The second term is the native pass's error
// beyond the roundings of its result, plus the error of the formula, d = ||sum p - f||. Rank i gets
// the part t_i of it, which is its part of all squared terms of the sum, because a kernel that
// accumulates in low precision errs in each of its terms. ||c_i - p_i|| has the ratio limit
// (spread.h). The first term's error has (sum_j p_ij^2)^2 / sum_j p_ij^4 degrees of freedom,
// because elements are rounded independently, the second's those of the whole vector's noise; the
// second is an estimate from as many, the first is derived (Satterthwaite's rule, for both). A
// factor,
//
//   a_i = <c_i - p_i, p_i> / ||p_i||^2
//   scale^2 = (scale_i^2 / ||p_i||^2) sum_j p_ij^4 / ||p_i||^4 + a_n^2 + u32^2
//
// is judged like the factor of a whole tensor (operator_check.h), with as many degrees of freedom
// as the estimate of scale_i. Roundings of the elements are independent of one another.
//
// Clean runs of random layouts reached ||c_i - p_i|| / scale_i of 1.82
// (`ttrace_fuzz_layouts 30 7821 --precision bf16`), 0.63 (`15 7822 --precision f32`) and 1.83
// (`15 7823 --precision fp8`); factors reached 0.42, 0.17 and 0.34 of their bounds. Elements with
// one rounding each cannot exceed 2.4 in BF16.
//
// Thread-safety: immutable; compare() may run in any number of threads.
#pragma once

#include "analysis/align/matching.h"
#include "analysis/align/producers.h"
#include "analysis/align/values.h"
#include "analysis/bounds/limits.h"
#include "analysis/checks/operator_residual.h"
#include "analysis/findings/diagnosis.h"
#include "trace/file/trace_reader.h"
#include "trace/merge/merge.h"
#include "trace/merge/shard_index.h"

#include <ttrace/tensor_id.h>

#include <cstddef>
#include <optional>
#include <vector>

namespace ttrace {

// The records of one rank.
struct RankAddend {
  // A call of the parameter's module.
  struct Call {
    Values gradient;              // of its output, rows of the vector's width
    std::optional<Values> input;  // the same rows; absent if they were not recorded
  };
  const Shard* shard = nullptr;
  std::vector<double> found;  // c_i
  std::vector<Call> calls;
};

class AddendCheck {
 public:
  // Keeps references to the trace.
  explicit AddendCheck(const Trace& candidate);

  // `wide` is f, and `residual` has the figures of the whole tensor. Its part and factor become
  // those of the addends nearest to their bounds, or farthest beyond; there is no factor of vectors
  // that are too short. Leaves a tensor as it is that is not a sum of ranks' addends, or whose
  // formula is not known.
  void compare(const Match& match,
               const MergeResult& wide,
               const ErrorSpread& spread,
               OperatorResidual& residual) const;

 private:
  [[nodiscard]] std::optional<std::vector<RankAddend>> addends_of(const Match& match) const;
  [[nodiscard]] std::vector<RankAddend::Call> calls_of(const TensorId& parameter,
                                                       int rank,
                                                       std::size_t width) const;
  [[nodiscard]] const Shard* input_of(int rank, const TensorId& id) const;

  ShardIndex shards_;
  RecordedProducers producers_;
};

}  // namespace ttrace
