// What adding up the ranks' gradients of a parameter rounds on the way to its main grad.
//
// Data-parallel ranks each have the gradient of their own samples, and buckets of many parameters
// are reduced, so that no sum over ranks belongs to one record. Where main grads are BF16 or F16,
// all p addends were rounded, and the sum after each of them:
//
//   e^2 = u^2 (sum_i ||v_i||^2 + (p - 1) ||c||^2)
//
// with v_i what rank i has recorded of the parameter's gradients. Where the candidate records none
// (FSDP2 reduces them before anyone sees them; experts have the tokens of several micro-batches in
// one product), the first term is (u_p ||c||)^2 with u_p of the parameter's type, and p the
// data-parallel size. In F32 and F64 the second term is nothing beside what is granted anyway.
//
// Thread-safety: immutable.
#pragma once

#include "analysis/bounds/limits.h"
#include "trace/file/trace_reader.h"

#include <ttrace/element_type.h>
#include <ttrace/tensor_id.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>

namespace ttrace {

class GradientSums {
 public:
  explicit GradientSums(const Trace& candidate, const Limits& limits = {});

  // e^2 of a main grad c, of any other record 0. `type`: of its record; `squared`: ||c||^2.
  [[nodiscard]] double squared_rounding(const TensorId& id, ElementType type, double squared) const;
  // Whether `id` is a main grad whose addends the candidate has not recorded.
  [[nodiscard]] bool is_without_addends(const TensorId& id) const;

 private:
  struct Addends {
    int ranks = 1;
    double squared = 0.0;  // sum of ||v_i||^2
  };
  std::map<std::pair<std::int64_t, std::string>, Addends> addends_;  // by step and path
  std::map<std::string, ElementType> parameters_;                    // by path
  int data_parallel_ = 1;
  Allowances allowances_;
};

}  // namespace ttrace
