// T1 of gradients of vectors, addend by addend: is what each rank adds to the gradient of a norm's
// weight, or of a bias, what its own rows give?
//
// Where ranks have rows of their own (sequence and context parallelism), the gradient of a vector
// is a sum of one addend per rank, and an error in one of them is small against all. But a rank's
// trace has all that its addend is made from, in exactly the bits that the kernel got: x, the
// module's input, and g, the gradient of its output. So every addend is computed again in FP64,
//
//   p_i = sum over rank i's rows of g                      (a bias)
//   p_i = sum over rank i's rows of g (x - m) / sqrt(v + epsilon)   (a norm's weight)
//
// Which of these a parameter has, and which epsilon, is declared nowhere: the formula whose sum
// over all ranks is nearest to f, the forced pass's gradient in the higher precision, and not more
// than 1 % off. Where none is, or a rank lacks records, addends are not checked. For a recorded
// addend c_i
//
//   scale_i^2 = u^2 max(||c_i||, ||p_i||)^2 + t_i (max(0, ||n - f||^2 - 2 u^2 ||c||^2) + d^2)
//
// u is the relative error of one rounding of its type. What the native pass errs beyond roundings
// of its result, and what the formula leaves, d = ||sum p - f||, is shared out by t_i, the part
// of all squared terms of the sum that are rank i's: a kernel that accumulates in low precision
// errs in each of its terms. ||c_i - p_i|| has the limit of shards, and where the second term is
// the larger one, that of an estimate from as few elements (limit_of_estimate()). A factor,
//
//   a_i = <c_i - p_i, p_i> / ||p_i||^2
//   scale^2 = (scale_i^2 / ||p_i||^2) sum_j p_ij^4 / ||p_i||^4 + a_n^2 + u32^2
//
// is judged as that of whole tensors (operator_check.h); roundings of the elements are independent
// of one another.
//
// Largest ||c_i - p_i|| / scale_i of addends in clean runs of random layouts, whose limit is 3:
// `ttrace_fuzz_layouts 30 7821 --precision bf16` 1.82, `15 7822 --precision f32` 0.63, `15 7823
// --precision fp8` 1.83; of factors 0.42, 0.17 and 0.34 of their bounds. Elements of one rounding
// each cannot pass 2.4 in BF16.
//
// Thread-safety: immutable; compare() may run in any number of threads.
#pragma once

#include "analysis/align/matching.h"
#include "analysis/align/values.h"
#include "analysis/checks/operator_residual.h"
#include "analysis/findings/diagnosis.h"
#include "trace/base/tensor_id_hash.h"
#include "trace/file/trace_reader.h"
#include "trace/merge/merge.h"
#include "trace/merge/shard_index.h"

#include <ttrace/tensor_id.h>

#include <cstddef>
#include <map>
#include <optional>
#include <unordered_map>
#include <vector>

namespace ttrace {

struct AddendResidual {
  SliceComparison part;                    // the addend nearest to its bound, or farthest beyond
  std::optional<FactorComparison> factor;  // the same of factors; of vectors long enough
  std::optional<Diagnosis> known_cause;    // where the addends beyond are factors of what is right
};

// What one rank recorded.
struct RankAddend {
  // Of the parameter's module.
  struct Call {
    Values gradient;              // of its output, rows of the vector's width
    std::optional<Values> input;  // the same rows; absent if there are none of them
  };
  const Shard* shard = nullptr;
  std::vector<double> found;  // c_i
  std::vector<Call> calls;
};

class AddendCheck {
 public:
  // Keeps references to the trace.
  explicit AddendCheck(const Trace& candidate);

  // `wide` is f, `residual` that of the whole tensor; the limits are those of Q and of the factor.
  // Nothing of a tensor that is no sum of ranks' addends, or whose formula is not known.
  [[nodiscard]] std::optional<AddendResidual> compare(const Match& match,
                                                      const MergeResult& wide,
                                                      const OperatorResidual& residual,
                                                      double limit,
                                                      double factor_limit) const;

 private:
  [[nodiscard]] std::optional<std::vector<RankAddend>> addends_of(const Match& match) const;
  [[nodiscard]] std::vector<RankAddend::Call> calls_of(const TensorId& parameter,
                                                       int rank,
                                                       std::size_t width) const;
  [[nodiscard]] const Shard* record_of(int rank, const TensorId& id) const;
  [[nodiscard]] const Shard* input_of(int rank, const TensorId& id) const;

  ShardIndex shards_;
  // By consumer and rank.
  std::unordered_map<TensorId, std::map<int, TensorId>, TensorIdHash> producers_;
};

}  // namespace ttrace
