// The dyadic pass: which tensors must be equal in every bit?
//
// Under TTRACE_INPUTS=dyadic, every module gets small multiples of a power of two, so a sum of
// products is exact in F32 in any order. Nobody declares whether an operator makes only such sums;
// we measure it. A golden pass, which is the reference in FP64 with the same inputs, gives the same
// numbers exactly where the reference rounded nothing. There the candidate must be equal, however
// its layout cuts the work. Where the reference itself rounds (softmax, GELU, norms), nothing is
// judged.
//
// A main gradient is not judged if the candidate cannot record the parameter's gradients of
// micro-batches, because one of its products has the tokens of several micro-batches (experts): the
// reference's gradients were replaced, but the candidate's were not. Gradients are not judged
// either if a candidate stores a multiple of some gradient by a factor that is not a power of two
// (a mean over three ranks), because this multiple is rounded.
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

// Excuses an input that one side has recorded because it is a copy of what a module returned, while
// the other side took that itself: it holds what was given in its place, which no record shows.
void mark_copied_inputs(const Trace& reference,
                        const Trace& candidate,
                        std::span<TensorVerdict> tensors);

}  // namespace ttrace
