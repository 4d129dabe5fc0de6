// T1: is every operator right, given the candidate's own inputs?
//
// In two forced passes (TTRACE_PASS=forced) the reference's operators compute every tensor from the
// candidate's own values: f in a higher precision than the candidate's, n in the same precision.
// No tensor inherits an error from earlier ones, so the errors of different tensors are
// independent.
//
//   R = ||c - f|| / scale
//   scale^2 = max(||n - f||^2, u^2 ||c||^2) + e^2
//   e^2 = u^2 (sum_i ||v_i||^2 + (p - 1) ||c||^2)  for every sum over p ranks
//
// ||n - f|| is the rounding error of the operators in this very tensor, and at least one rounding
// of c, or of both operands of a product where F32 ones are rounded (machine.h). e^2 is the extra
// rounding caused by the candidate's layout: v_i are the addends of its ranks. A collective summed
// them on the way to c (RoundedSum), or they are added here (then without the second term). Where
// nobody saw a sum that the placement tells of, e^2 is p times the first term of scale^2: the
// addends' squared norms are taken to add up to that of the sum, and the operators behind it to
// enlarge its rounding as they enlarged that of n. u is the relative error of one rounding of their
// type (for F32 and F64: of another order of summation, default_unit()). gradient_sums.h has the
// rounding of main grads when ranks' gradients are added up.
//
// The largest R that passes is the ratio limit (spread.h). The error has the degrees of freedom of
// the noise passes' (at most the elements), and so has ||n - f||; the other terms are derived, so
// that the estimate of the scale has more of them, by Satterthwaite's rule:
//
//   nu_scale = nu (scale^2 / ||n - f||^2)^2
//
// A vector's gradient that is a sum of ranks' addends is also judged addend by
// addend (addend_check.h). Parts of a tensor are judged likewise, with v_i = ||n - f||_i^2
// (slices.h). A factor is judged on its own, because it adds up over all elements while roundings
// average out:
//
//   a = <c - f, f> / ||f||^2, a_n the same of n
//   V(x) = max over dimensions of 32 indices and more (sum over its slices <x - f, f>_i^2)
//   scale^2 = (a_n^2 + V(n) / ||f||^4) (1 + e^2 / max(||n - f||^2, u^2 ||c||^2)) + u32^2
//   bound: the larger one of the ratio limit with 1 and N degrees of freedom and 5 sqrt(V(c)) /
//   ||f||^2, of N slices
//
// V is the variance of a ||f||^2 if the roundings of different slices are independent; inside a
// slice they may depend on one another. V(c) counts, too, because c may have been rounded where n
// was not, in the same way in a whole column (a product before its bias is added). A factor that
// all slices share makes V(c) small compared with a. u32 is one F32 rounding, because programs
// store factors in F32. First moments get three: their gradient is clipped by a norm that the
// candidate sums in another order. Second moments contain the square, so they get six. The error k
// of that norm (ClippingNorms) is granted to the factor once or twice, and e^2 of a moment contains
// k^2 ||c||^2.
//
// An optimizer's update of parameters in F32 or F64 is not a sum. It has two roundings of its own,
// the decay and the step, and the error u of the step itself, because programs compute the factors
// of the step in different ways:
//
//   u ||c||  becomes  (2 (u_1 ||c||)^2 + (u ||c - p||)^2)^(1/2)
//
// with p the parameter at the start of the step and u_1 the relative error of one rounding. Its
// factor, one minus learning rate times decay, is a number of F32: the scale of a is u_1 and
// u ||c - p|| / ||c||, and its bound 1.8 times that, because such a number is off by half a unit in
// the last place, 1.2 u_1, and the next one by 2.4 u_1.
//
// A kernel may round a product before its bias b is added to it. Where b nearly cancels the
// product, c tells nothing of its size: the first term of scale^2, of the output of a module with a
// bias of the last dimension, is at least u^2 b_j^2 for every element of feature j.
//
// Ring attention over p ranks adds up p rounded parts of a gradient of its inputs, and rounds p - 1
// sums of them, which no sum over ranks tells of: e^2 contains 2 (p - 1) times the first term of
// scale^2. Parts of such
// gradients are not judged, because they cancel in the rows of a document's first tokens.
//
// If candidate and reference store different multiples of a gradient (a data-parallel size of 3 in
// the loss scale), they round on different grids. Then u is the largest error of one rounding,
// because equal elements all have the same error; |a| may be that much larger; and with FP8, e^2
// contains a rounding to E5M2.
//
// A tensor that noise passes move by more than its norm is not judged this way (Judge). The true
// gradient of a key's bias is zero, for example, and how its roundings cancel depends on their
// order: clean R reached 2.5 to 4.3 in F32 with tensor parallelism.
//
// Source of the normalisation: clean R is 1.0 for every class of operators and does not depend on
// the layout. Raw residuals do depend on the class (0.0014 to 0.014 in BF16); docs/verdict.md has
// the figures.
//
// Thread-safety: immutable; compare() may run in any number of threads.
#pragma once

#include "analysis/align/matching.h"
#include "analysis/bounds/limits.h"
#include "analysis/checks/addend_check.h"
#include "analysis/checks/clipping_norms.h"
#include "analysis/checks/gradient_sums.h"
#include "analysis/checks/hidden_choices.h"
#include "analysis/checks/operator_residual.h"
#include "analysis/findings/verdict.h"
#include "trace/base/tensor_id_hash.h"
#include "trace/file/rounded_sum.h"
#include "trace/file/trace_reader.h"
#include "trace/merge/merge.h"
#include "trace/merge/shard_index.h"
#include "trace/sums/statistics.h"

#include <ttrace/tensor_id.h>

#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

namespace ttrace {

// The traces of the two forced passes.
struct ForcedTraces {
  Trace wide;    // f
  Trace native;  // n
};

class OperatorCheck {
 public:
  // Keeps references to the traces.
  OperatorCheck(const ForcedTraces& traces, const Trace& candidate, const Limits& limits = {});

  // Judges a floating-point tensor of the candidate by what `spread` says of chance. Returns
  // nothing if a forced pass does not have it, or has it in another shape, or if it follows from
  // choices that nobody recorded. `other_grid`: the stored tensor is a multiple of the logical
  // value by a factor that is not a power of two, so the two sides round on different grids.
  // `head`: see SliceContext.
  [[nodiscard]] std::optional<OperatorResidual> compare(const Match& match,
                                                        const MergeResult& candidate,
                                                        const ErrorSpread& spread,
                                                        bool other_grid = false,
                                                        std::int64_t head = 0) const;

 private:
  struct Sides;
  // Whether what the tensor is was made before the first traced step.
  [[nodiscard]] bool is_from_before(const TensorId& id) const;
  // What parts of a tensor are judged with, in addition to its residual.
  struct PartTerms {
    const ErrorSpread& spread;
    std::int64_t head = 0;
    bool are_judged = true;
    std::span<const double> by_feature =
        {};                      // squared scale that an index of the last dimension adds
    std::optional<double> step;  // of what an optimizer has updated
    double granted = 0.0;        // to the factor
  };
  // Returns nothing if a forced pass did not record the tensor, or recorded another shape.
  [[nodiscard]] std::optional<Sides> sides_of(const Match& match,
                                              const MergeResult& candidate) const;
  [[nodiscard]] static double unlike_in(const Sides& sides, const MergeResult& candidate);
  void compare_parts(const Match& match,
                     const Sides& sides,
                     const TensorPair& pair,
                     const PartTerms& terms,
                     OperatorResidual& residual) const;
  // For a tensor that an optimizer updates, in a type whose u is more than one rounding: u ||c -
  // p|| over ||c||.
  [[nodiscard]] std::optional<double> step_of(const Match& match,
                                              const MergeResult& candidate) const;
  // Relative, of the result. `step`: see step_of().
  [[nodiscard]] double rounding_of(ElementType type, const std::optional<double>& step) const;
  // (unit b_j)^2 of an output of a module with a bias of the last dimension; else empty.
  [[nodiscard]] std::vector<double> squared_bias(const Match& match,
                                                 const Sides& sides,
                                                 double unit) const;
  // Of the scale. `clipping`: the relative error of the norm that a gradient was clipped by.
  void add_components(const Match& match,
                      const Sides& sides,
                      double clipping,
                      bool other_grid,
                      OperatorResidual& residual) const;
  [[nodiscard]] double squared_sums(const Match& match,
                                    const Statistics& statistics,
                                    double own) const;
  [[nodiscard]] double squared_other_grid(const Match& match, const Statistics& statistics) const;

  ShardIndex wide_;
  ShardIndex native_;
  AddendCheck addends_;
  ClippingNorms norms_;
  GradientSums gradients_;
  HiddenChoices hidden_;
  Limits limits_;
  std::unordered_map<TensorId, std::vector<RoundedSum>, TensorIdHash> sums_;
  double of_products_ = 0.0;     // of one product whose operands are rounded; 0: they are not
  bool quantises_ = false;       // the candidate has FP8 scales
  std::int64_t first_step_ = 0;  // that was traced
  std::int64_t ring_ = 1;        // ranks that an attention core's inputs come from
};

}  // namespace ttrace
