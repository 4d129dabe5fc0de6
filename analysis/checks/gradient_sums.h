// The rounding of a parameter's main grad that comes from adding up the ranks' gradients.
//
// Data-parallel ranks each have the gradient of their own samples. Programs reduce buckets of many
// parameters, so no sum over ranks belongs to one record. If main grads are BF16 or F16, each of
// the p addends was rounded, and so was the sum after each of them:
//
//   e^2 = u^2 (sum_i ||v_i||^2 + (p - 1) ||c||^2)
//
// v_i are the parameter's gradients that rank i recorded. If the candidate records none (FSDP2
// reduces them before anyone sees them; experts have the tokens of several micro-batches in one
// product), the first term is (u_p ||c||)^2 with u_p of the parameter's type, and p is the
// data-parallel size. In F32 and F64 the second term is negligible.
//
// Ranks with the same samples add up gradients, too, if each has its own tokens or heads (a norm's
// weight under sequence parallelism). Where no addends are recorded, q ranks of such a group that
// hold the same main grad, but have different gradients of the module's output, round their sum in
// the type of these gradients. It may be lower than that of the parameter, which FSDP2's mixed
// precision casts:
//
//   e^2 grows by u_g^2 (q - 1) ||c||^2
//
// Thread-safety: immutable.
#pragma once

#include "analysis/align/model_vocabulary.h"
#include "analysis/bounds/limits.h"
#include "trace/file/trace_reader.h"

#include <ttrace/element_type.h>
#include <ttrace/tensor_id.h>

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>

namespace ttrace {

class GradientSums {
 public:
  GradientSums(const Trace& candidate, const Allowances& allowances);

  // e^2 of a main grad c, of any other record 0. `type`: of its record; `squared`: ||c||^2.
  [[nodiscard]] double squared_rounding(const TensorId& id, ElementType type, double squared) const;
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
  // u_g^2 (q - 1) of a parameter whose addends nobody recorded.
  [[nodiscard]] double squared_among_copies(const TensorId& id) const;

  std::map<Key, Addends> addends_;
  std::map<std::string, ElementType> parameters_;  // by path
  std::map<Key, int> copies_;  // of a main grad, on ranks that have the same samples
  // Of modules whose gradient of the output differs between such ranks.
  std::map<Key, ElementType> cut_gradients_;
  int data_parallel_ = 1;
  Allowances allowances_;
};

}  // namespace ttrace
