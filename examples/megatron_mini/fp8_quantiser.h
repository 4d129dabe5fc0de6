// Quantises one operand of a linear to FP8 and back, as the ranks that hold it do together.
//
// A scale is what codes are multiplied with: amax / (largest number of the format). An amax of 0
// gives 1, in a block the smallest power of two. Whose amax it is depends on the recipe:
//   current    the logical tensor's: the ranks that hold parts of it share their largest
//   delayed    the largest of the past steps'; within a step amaxes are only collected, and shared
//              at its end over all ranks with that operand. Before the first step is over there is
//              none: forward operands then have scale 1, gradients the scale of `current`
//   blockwise  of 128 neighbouring features, or 128 x 128 elements of a weight, which no rank
//              shares (check_fp8); the scale is the next power of two
//   mxfp8      the same for 32 features
// Numbers beyond the largest one become it; NaN stays NaN, infinity stays so or becomes NaN where
// the format has none, and neither counts in an amax.
//
// Sources: TransformerEngine's recipes DelayedScaling, Float8CurrentScaling, Float8BlockScaling and
// MXFP8BlockScaling. There products that sum over tokens use copies cut along tokens; here all
// products use the same values.
//
// Thread-safety: none; one training thread.
#pragma once

#include "collectives.h"
#include "config.h"

#include <ATen/core/Tensor.h>

#include <vector>

namespace megatron_mini {

struct Fp8Values {
  at::Tensor values;  // what the codes stand for, in the type of what was quantised
  at::Tensor scale;   // [] f32, or E8M0 powers of two, one per block: features last
};

class Fp8Quantiser {
 public:
  struct Operand {
    at::ScalarType format = at::kFloat8_e4m3fn;  // or kFloat8_e5m2
    bool is_weight = false;
    bool is_gradient = false;
    std::vector<Group> holders;  // ranks of these groups hold other parts of the same tensor
    // Planted bugs.
    bool is_signed = false;     // the largest number counts, not the largest magnitude
    bool is_immovable = false;  // the history has one place for all steps, the oldest but one
  };
  Fp8Quantiser(const Fp8Config& config, Operand operand);

  // [..., features]. Where a scale is shared all ranks of the holders call. `with_newest`: delayed
  // scales follow from this step as well, a planted bug.
  [[nodiscard]] Fp8Values quantise(const at::Tensor& tensor, bool with_newest = false);
  // Delayed scaling: the scale that would follow from this step as well.
  [[nodiscard]] at::Tensor newest_scale() const;

  // Delayed scaling: [history] f32, latest step first; else undefined.
  [[nodiscard]] const at::Tensor& history() const { return history_; }
  // Delayed scaling: this rank's largest magnitude of the step, [] f32.
  [[nodiscard]] const at::Tensor& collected() const { return collected_; }
  // Ends a step whose largest magnitude over all ranks was `amax`, [] f32.
  void roll(const at::Tensor& amax);

 private:
  [[nodiscard]] at::Tensor shared_amax(const at::Tensor& tensor) const;
  [[nodiscard]] at::Tensor magnitudes(const at::Tensor& wide) const;
  [[nodiscard]] at::Tensor tensor_scale(const at::Tensor& wide, bool with_newest);
  [[nodiscard]] Fp8Values by_block(const at::Tensor& wide) const;
  [[nodiscard]] at::Tensor scale_of(const at::Tensor& amax) const;
  [[nodiscard]] at::Tensor round_trip(const at::Tensor& wide, const at::Tensor& scale) const;

  Fp8Config config_;
  Operand operand_;
  at::Tensor history_;
  at::Tensor collected_;
};

// Number of features that share a scale; 0 where a whole tensor does.
[[nodiscard]] std::int64_t fp8_block(Fp8Recipe recipe);

}  // namespace megatron_mini
