// T1: is every operator right, given the candidate's own inputs?
//
// In two forced passes (TTRACE_PASS=forced) the reference's operators compute every tensor from the
// candidate's own values: f in a higher precision than the candidate's, n in the same precision.
// No tensor inherits an error from earlier ones, so the errors of different tensors are
// independent.
//
//   R = ||c - f|| / scale
//   scale^2 = max(||n - f||^2, u^2 (||c||^2 + ||f - b||^2)) + e^2
//
// ||n - f|| is the rounding error of the operators in this very tensor, and at least one rounding
// of c, or of both operands of a product where F32 ones are rounded (machine.h). u is the relative
// error of one rounding of the tensor's type (unit_of()). The candidate may round a product before
// it adds a bias b of the last dimension, where the native pass's kernel does both in one; f - b is
// that product, and 0 without a bias. e^2 is the extra rounding caused by the candidate's layout
// (rank_sums.h). Where it has sums over ranks, the product's rounding is in it.
//
// The largest R that passes is the ratio limit (spread.h): the error has the degrees of freedom of
// the noise passes', or those that its own slices show, if these are more (error_freedom.h), the
// estimate nu (scale^2 / ||n - f||^2)^2, because all but ||n - f||^2 is derived (Satterthwaite).
// Parts are judged likewise, with v_i = ||n - f||_i^2 (slices.h), and a vector's gradient that is a
// sum of ranks' addends addend by addend (addend_check.h). A factor adds up over all elements while
// roundings average out, so it is judged on its own:
//
//   a = <c - f, f> / ||f||^2, a_n the same of n
//   V(x) = max over dimensions of 32 indices and more (sum over its slices <x - f, f>_i^2)
//   scale^2 = (a_n^2 + V(n) / ||f||^4) scale^2 / own^2 + roundings of F32
//   bound: the larger one of the ratio limit with 1 and N degrees of freedom and 5 sqrt(V(c)) /
//   ||f||^2, of N slices
//
// V is the variance of a ||f||^2 if the roundings of different slices are independent. V(c) counts,
// too, because c may have been rounded where n was not, alike in a whole column.
//
// An optimizer's update of parameters in F32 or F64 from p to c is not a sum. It rounds the decay
// and the step, and programs compute the factors of the step in different ways:
//
//   u ||c||  becomes  (2 (u_1 ||c||)^2 + (u ||c - p||)^2)^(1/2), u_1 one rounding
//
// Its factor, one minus learning rate times decay, is a number of F32: its bound is 1.8 times the
// scale, because such a number is off by 1.2 u_1, and the next one by 2.4 u_1.
//
// docs/verdict_reference.md has the reason and the measurement of every component.
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
#include "analysis/checks/hidden_choices.h"
#include "analysis/checks/operator_residual.h"
#include "analysis/checks/rank_sums.h"
#include "analysis/findings/verdict.h"
#include "trace/file/trace_reader.h"
#include "trace/merge/merge.h"
#include "trace/merge/shard_index.h"
#include "trace/sums/statistics.h"

#include <ttrace/tensor_id.h>

#include <optional>
#include <span>
#include <string>
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
  OperatorCheck(const ForcedTraces& traces,
                const Trace& candidate,
                const Allowances& allowances = {});

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
  // Whether it is made by an update whose norm is_of_others().
  [[nodiscard]] bool clips_other_gradients(const TensorId& id) const;
  // Whether what the tensor is was made before the first traced step.
  [[nodiscard]] bool is_from_before(const TensorId& id) const;
  // What parts of a tensor are judged with, in addition to its residual.
  struct PartTerms {
    const ErrorSpread& spread;
    std::int64_t head = 0;
    ErrorFreedom freedom = {};        // that the slices show, once they are judged
    std::optional<double> step = {};  // of what an optimizer has updated
    double granted = 0.0;             // to the factor
  };
  // Returns nothing if a forced pass did not record the tensor, or recorded another shape.
  [[nodiscard]] std::optional<Sides> sides_of(const Match& match,
                                              const MergeResult& candidate,
                                              bool with_parts) const;
  [[nodiscard]] static double unlike_in(const Sides& sides, const MergeResult& candidate);
  void compare_parts(const Match& match,
                     const Sides& sides,
                     const TensorPair& pair,
                     PartTerms& terms,
                     OperatorResidual& residual) const;
  // For a tensor that an optimizer updates, in a type whose u is more than one rounding: u ||c -
  // p|| over ||c||.
  [[nodiscard]] std::optional<double> step_of(const Match& match,
                                              const MergeResult& candidate) const;
  // Relative, of the result. `step`: see step_of().
  [[nodiscard]] double rounding_of(const Match& match, const std::optional<double>& step) const;
  // ||f - b||^2 of each index of the last dimension, for an output of a module with such a bias b;
  // else empty.
  [[nodiscard]] std::vector<double> products_of(const Match& match, const Sides& sides) const;
  // Of the scale. `products`: see products_of().
  void add_own_roundings(const Match& match,
                         const Sides& sides,
                         const std::vector<double>& products,
                         OperatorResidual& residual) const;
  void add_sums(const Match& match,
                const Sides& sides,
                const std::vector<double>& products,
                OperatorResidual& residual) const;
  [[nodiscard]] double squared_other_grid(const Match& match, const Statistics& statistics) const;

  ShardIndex wide_;
  ShardIndex native_;
  AddendCheck addends_;
  ClippingNorms norms_;
  RankSums sums_;
  HiddenChoices hidden_;
  Allowances allowances_;
  double of_products_ = 0.0;     // of one product whose operands are rounded; 0: they are not
  bool quantises_ = false;       // the candidate has FP8 scales
  std::int64_t first_step_ = 0;  // that was traced
};

}  // namespace ttrace
