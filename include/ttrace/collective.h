// Reports a communication between ranks, so that `ttrace check --collectives` can tell whether its
// outputs are what the ranks' inputs make, without any reference.
//
//   ttrace::Collective report({.operation = ttrace::CollectiveOperation::kAllReduce,
//                              .group = "tp-0", .rank = group->getRank(), .size =
//                              group->getSize()},
//                             tensor);                 // before it starts: it may be in place
//   group->allreduce(tensors)->wait();
//   report.finished(tensor);                           // after it was waited for
//
// Recorded as `s0/collective_input/tp-0.17/0` and `.../collective_output/...`: the 17th call in
// that group within the step, counted from 0 in the order in which calls start, which must be the
// same on all ranks of a group. Inert outside traced steps, and unless TTRACE_COLLECTIVES=1,
// because inputs and outputs of all communication together are half as much as all else.
//
// What a sum over ranks rounds (RoundedSum) is noted in any traced step, of c10d's operators even
// if nobody reports them: reports serve that purpose where ranks communicate in another way.
//
// Point-to-point messages are records of kind `sent` and `received` under one path.
#pragma once

#include <ttrace/collective_call.h>
#include <ttrace/export.h>
#include <ttrace/tensor_id.h>

#include <ATen/core/Tensor.h>

#include <optional>

namespace ttrace {

// Lives from before the call until after its end, on any thread. One that ends in another step than
// it began, or never, leaves only its input.
class TTRACE_API Collective {
 public:
  Collective(const CollectiveCall& call, const at::Tensor& input);
  void finished(const at::Tensor& output);

 private:
  std::optional<TensorId> output_;  // nothing where the call is not traced
};

}  // namespace ttrace
