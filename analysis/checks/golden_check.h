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
//   limit = kernel factor x root of F's quantile of nu and nu degrees of freedom    (spread.h)
//   too coarse:   rho > limit
//   too accurate: rho < 1 / limit, and ||r - g|| > 2 u ||g||: r and g differ by more than a
//   rounding
//                 of the stored value; otherwise c could not be nearer
//
// nu is that of the noise passes' errors, and where they say nothing, that of a thing of which
// nothing is known. The share of the noise that updates brought from earlier steps has one degree
// of freedom: an update of Adam flips its sign in one run and not in the other. u is the relative
// error of one rounding of the run's stored type. Two numbers have one degree of freedom and an
// enormous limit, because their ratio may be anything.
//
// Thread-safety: immutable; compare() may run in any number of threads.
#pragma once

#include "analysis/align/matching.h"
#include "analysis/bounds/allowance.h"
#include "analysis/bounds/bounds.h"
#include "analysis/findings/check.h"
#include "trace/file/trace_reader.h"
#include "trace/merge/merge.h"
#include "trace/merge/shard_index.h"

#include <ttrace/tensor_id.h>

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
                                           const MergeResult& candidate,
                                           const ErrorSpread& spread) const;

 private:
  std::string precision_;
  double least_error_;  // relative, of a reference that c may be too accurate beside
  ShardIndex shards_;
};

}  // namespace ttrace
