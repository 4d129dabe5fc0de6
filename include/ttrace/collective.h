// Reports a communication between ranks, so that `ttrace check --collectives` can check, without
// any reference, whether its outputs follow from the ranks' inputs.
//
// clang-format off
//   ttrace::Collective report({.operation = ttrace::CollectiveOperation::kAllReduce,
//                              .group = "tp-0", .rank = rank, .size = size},
//                             tensor);  // before it starts: it may be in place
//   all_reduce(tensor);
//   report.finished(tensor);            // after the program has waited for it
// clang-format on
//
// Recorded as `s0/collective_input/tp-0.17/0` and `s0/collective_output/tp-0.17/0`: call number 17,
// counted from 0, of that group within the step. REQUIRES: the ranks of a group start their calls
// in the same order.
//
// Inputs and outputs are recorded only within traced steps and if TTRACE_COLLECTIVES=1, because
// they take half as much space as everything else. The rounding of a sum over ranks (RoundedSum) is
// noted in every traced step. For operators of c10d it is noted even if nobody reports them; a
// program that communicates in another way needs the report.
//
// Point-to-point messages are reported by Microbatch::sent() and Microbatch::received().
//
// Errors: nothing here throws. In a traced step the first error stops the tracing, see session.h.
//
// Thread-safety: one object belongs to one thread at a time; objects are independent of each other.
#pragma once

#include <ttrace/collective_call.h>
#include <ttrace/tensor_id.h>

#include <ATen/core/Tensor.h>

#include <optional>
#include <source_location>

namespace ttrace {

// Lives from before the call until after its end, on any thread. If it ends in another step than it
// began, or the program never calls finished(), the trace has only its input.
class Collective {
 public:
  // Records a copy of `input`, in the order of the calls of the group. A report on a wrong call
  // names the line `where`.
  Collective(const CollectiveCall& call,
             const at::Tensor& input,
             const std::source_location& where = std::source_location::current());
  // Records a copy of `output`. REQUIRES: the program has waited for the communication. A second
  // call has no effect.
  void finished(const at::Tensor& output);

 private:
  std::optional<TensorId> output_;  // nothing where the call is not traced
};

}  // namespace ttrace
