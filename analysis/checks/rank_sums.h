// What the candidate's layout rounds beyond a tensor's own operators: addends that ranks hold, and
// the sums of them.
//
// Adding up the addends v_1 ... v_p of p ranks to c rounds every addend once that is stored, and
// each of the sums s_2 ... s_p of 2 to p addends:
//
//   e^2 = u^2 (sum_i ||v_i||^2 + sum_k ||s_k||^2)
//       = u^2 ((1 + (p + 1) / 6 - 1 / p) sum_i ||v_i||^2 + (p + 1) / 3 ||c||^2)
//
// because each element begins its sum at another rank: s_k is the sum of k addends chosen by
// chance, so that ||s_k||^2 is k (p - k) / (p (p - 1)) sum_i ||v_i||^2 + k (k - 1) / (p (p - 1))
// ||c||^2 on average, whatever the addends have in common. Addends that cancel make large sums on
// the way to a small one. Where a bias is added to the sum, c is the sum before it.
//
// with u one rounding of the type that is summed (unit_of()). What is known of a sum differs:
// - A collective summed the addends on the way to c, and recorded their norms (RoundedSum): all of
//   e^2, and of a matrix that of each column, because large addends may cancel in some columns and
//   not in others, where the operators behind them err no more than elsewhere. Where nobody saw a
//   sum that the placement tells of, e^2 is p times what the operators themselves round: the
//   addends' squared norms are taken to add up to that of the sum, and the operators behind it to
//   enlarge its rounding as they enlarged their own.
// - The tensor is stored as addends, which the comparison adds up in F64: the first term, of a
// matrix
//   that of each column.
// - Ring attention adds up p rounded parts of a gradient of its inputs, and rounds p - 1 sums of
//   them, inside of the operator: 2 (p - 1) times what the operators themselves round. Nobody sees
//   the parts, and they cancel in some rows (those of a document's first tokens), so that all of it
//   may lie in one part of the tensor.
// - Data-parallel ranks add up gradients of their own samples in buckets of many parameters, so
//   that no sum belongs to one record. v_i are the parameter's gradients that rank i recorded, and
//   where main grads are BF16 or F16, every sum was rounded; in F32 and F64 that is negligible. If
//   the candidate recorded none (FSDP2 reduces them before anyone sees them; experts have the
//   tokens of several micro-batches in one product), the first term is (u_p ||c||)^2 with u_p of
//   the parameter's type, and p is the data-parallel size.
// - Ranks with the same samples add up gradients, too, if each has its own tokens or heads (a
//   norm's weight under sequence parallelism). Where no addends are recorded, q ranks of such a
//   group that hold the same main grad, but have different gradients of the module's output, round
//   their sum in the type of these gradients: u_g^2 (q - 1) ||c||^2. That type may be lower than
//   the parameter's, which FSDP2's mixed precision casts.
//
// Source: Higham, Accuracy and Stability of Numerical Algorithms, 4.2, with errors independent.
//
// Thread-safety: immutable.
#pragma once

#include "analysis/align/matching.h"
#include "analysis/align/model_vocabulary.h"
#include "analysis/bounds/limits.h"
#include "trace/base/tensor_id_hash.h"
#include "trace/file/rounded_sum.h"
#include "trace/file/trace_reader.h"

#include <ttrace/element_type.h>
#include <ttrace/tensor_id.h>

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace ttrace {

class RankSums {
 public:
  explicit RankSums(const Trace& candidate);

  // e^2 of c without that of a ring. `norm_squared`: ||c||^2; `own`: the square of what the
  // operators themselves round.
  [[nodiscard]] double squared_rounding(const Match& match, double norm_squared, double own) const;
  // What squared_rounding() has of each index of the last dimension, whose ||c||^2 is in `columns`.
  // Empty where a sum does not tell, or something else is in it.
  [[nodiscard]] std::vector<double> by_column(const Match& match,
                                              std::span<const double> columns) const;
  // Whether ranks were seen to add up what the record holds.
  [[nodiscard]] bool has(const TensorId& id) const { return collectives_.contains(id); }
  [[nodiscard]] double of_ring(const TensorId& id, double own) const;
  // Whether `id` is a main grad whose addends the candidate did not record.
  [[nodiscard]] bool is_without_addends(const TensorId& id) const;

 private:
  struct Addends {
    int ranks = 1;
    double squared = 0.0;  // sum of ||v_i||^2
  };
  using Key = std::pair<std::int64_t, std::string>;  // step and path

  void add_addend(const Record& record);
  // Counts the main grads whose addends nobody recorded, and looks at the gradients of the outputs
  // of their modules.
  void look_among_copies(const Trace& candidate,
                         const ModelVocabulary& vocabulary,
                         const std::set<Key>& modules);
  [[nodiscard]] double of_collectives(const Match& match, double norm_squared, double own) const;
  // e^2 of a main grad, over ||c||^2 where nobody recorded its addends; of any other record 0.
  [[nodiscard]] double of_gradients(const Match& match, double norm_squared) const;
  // u_g^2 (q - 1) of a parameter whose addends nobody recorded.
  [[nodiscard]] double among_copies(const TensorId& id) const;

  std::unordered_map<TensorId, std::vector<RoundedSum>, TensorIdHash> collectives_;
  std::map<Key, Addends> addends_;
  std::map<std::string, ElementType> parameters_;  // by path
  std::map<Key, int> copies_;  // of a main grad, on ranks that have the same samples
  // Of modules whose gradient of the output differs between such ranks.
  std::map<Key, ElementType> cut_gradients_;
  int data_parallel_ = 1;
  std::int64_t ring_ = 1;  // ranks that an attention core's inputs come from
};

}  // namespace ttrace
