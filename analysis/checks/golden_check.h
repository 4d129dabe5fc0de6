// A two-sided check: is a tensor as far from the truth as its precision makes it, neither farther
// nor nearer?
//
// The golden pass (TTRACE_PASS=golden) is the reference in FP64 from the same parameters. With g
// its tensor, r the reference's and c the candidate's:
//
//   rho = ||c - g|| / ||r - g||
//
// If two programs compute in the same precision, round-off gives a rho near 1, although their
// errors are independent in most elements. A candidate that computes in a higher precision than it
// declares is too accurate (rho far below 1). No comparison with r alone can show that, because
// such a candidate is nearer to r than another rounding of r is. A candidate that is coarser, or
// wrong, is too inaccurate.
//
//   too accurate: rho < 0.25 (less for gradients of weights and in F32), and ||r - g|| > 2 u ||g||:
//                 r and g differ by more than a rounding of the stored value; otherwise c could not
//                 be nearer
//   too coarse:   rho > limit
//
// u is the relative error of one rounding of the run's stored type. limits.cpp has the limits by
// class. The check judges only values of the graph with kFewElements and more, because a ratio of
// two single numbers may be anything.
//
// In later steps than the first traced one, rho is reported but not judged: an update of Adam flips
// its sign where a gradient is near zero, and a few such elements decide the error of an embedding.
//
// Thread-safety: immutable; compare() may run in any number of threads.
#pragma once

#include "analysis/align/matching.h"
#include "analysis/bounds/allowance.h"
#include "analysis/findings/check.h"
#include "trace/file/trace_reader.h"
#include "trace/merge/merge.h"
#include "trace/merge/shard_index.h"

#include <ttrace/tensor_id.h>

#include <cstdint>
#include <string>
#include <vector>

namespace ttrace {

class GoldenCheck {
 public:
  // Keeps a reference to the trace of the golden pass. `precision`: that of the reference.
  GoldenCheck(const Trace& golden, std::string precision, const Allowances& allowances);

  // kTooAccurate and kTooCoarse. Returns nothing if the golden pass has no such tensor or has it in
  // another shape, where it is not judged so, and where reference and golden pass are equal.
  [[nodiscard]] std::vector<Check> compare(const Match& match,
                                           const MergeResult& reference,
                                           const MergeResult& candidate) const;

 private:
  std::string precision_;
  std::int64_t first_step_ = 0;
  bool of_sums_;  // errors are those of their order, not of storage
  double unit_;   // of one rounding of what is stored
  Allowances allowances_;
  ShardIndex shards_;
};

}  // namespace ttrace
