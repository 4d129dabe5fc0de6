// Dyadic pass: which tensors must be equal in every bit.
//
// Under TTRACE_INPUTS=dyadic every module is given small multiples of a power of two, so that a sum
// of products is exact in F32 in any order. Whether an operator makes only such sums is not
// declared but measured: a golden pass, the reference in FP64 with the same inputs, gives the same
// numbers exactly where the reference rounded nothing. There the candidate must be equal, however
// its layout cuts the work; where the reference itself rounds (softmax, GELU, norms) nothing is
// judged.
//
// A main gradient is not judged where the candidate cannot record the parameter's gradients of
// micro-batches, because one of its products has the tokens of several (experts): the reference's
// were replaced, the candidate's not.
// Gradients are not judged where a candidate stores a multiple of some gradient by a factor that is
// no power of two (a mean over three ranks): that is rounded.
//
// Thread-safety: immutable; must_be_equal() may run in any number of threads.
#pragma once

#include "analysis/align/matching.h"
#include "analysis/findings/verdict.h"
#include "trace/file/trace_reader.h"
#include "trace/merge/merge.h"
#include "trace/merge/shard_index.h"

#include <ttrace/tensor_id.h>

#include <set>
#include <span>
#include <string>

namespace ttrace {

class ExactCheck {
 public:
  // Keeps a reference to the trace of the golden pass.
  ExactCheck(const Trace& golden, std::span<const Match> matches);

  [[nodiscard]] bool must_be_equal(const TensorId& id, const MergeResult& reference) const;

 private:
  ShardIndex shards_;
  bool gradients_ = true;                  // are judged
  std::set<std::string> without_addends_;  // parameters whose main gradients are not
};

// Whether a trace was made under TTRACE_INPUTS=dyadic.
[[nodiscard]] bool has_dyadic_inputs(const Trace& trace);

// An input that the candidate has recorded because it is a copy of what a module returned, while
// the reference took that itself: it holds what was given in its place, which no record shows.
void mark_copied_inputs(const Trace& reference, std::span<TensorVerdict> tensors);

}  // namespace ttrace
