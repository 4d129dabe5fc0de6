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

struct Fp8Operand {
  at::ScalarType format = at::kFloat8_e4m3fn;  // or kFloat8_e5m2
  bool is_weight = false;
  bool is_gradient = false;
  std::vector<Group> holders;  // ranks of these groups hold other parts of the same tensor
  c10::Device device = at::kCPU;
};

class Fp8Quantiser {
 public:
  Fp8Quantiser(const Fp8Config& config, Fp8Operand operand);
  virtual ~Fp8Quantiser() = default;

  // [..., features]. Where a scale is shared all ranks of the holders call.
  [[nodiscard]] Fp8Values quantise(const at::Tensor& tensor);
  // The scale that follows from the largest magnitude.
  [[nodiscard]] at::Tensor scale_of(const at::Tensor& amax) const;

  // Delayed scaling: [history] f32, latest step first; else undefined.
  [[nodiscard]] const at::Tensor& history() const { return history_; }
  // Delayed scaling: this rank's largest magnitude of the step, [] f32.
  [[nodiscard]] const at::Tensor& collected() const { return collected_; }
  // Ends a step whose largest magnitude over all ranks was `amax`, [] f32.
  void roll(const at::Tensor& amax);

 protected:
  // What counts in an amax of `wide`, of its shape.
  [[nodiscard]] virtual at::Tensor magnitudes(const at::Tensor& wide) const;
  // Delayed scaling: the scale of a tensor with this amax, which is collected already.
  [[nodiscard]] virtual at::Tensor delayed_scale(const at::Tensor& amax) const;
  // Delayed scaling: the history of the steps behind this one, whose amax this is.
  [[nodiscard]] virtual at::Tensor next_history(const at::Tensor& amax) const;
  [[nodiscard]] const Fp8Operand& operand() const { return operand_; }

 private:
  [[nodiscard]] at::Tensor shared_amax(const at::Tensor& tensor) const;
  [[nodiscard]] at::Tensor tensor_scale(const at::Tensor& wide);
  [[nodiscard]] Fp8Values by_block(const at::Tensor& wide) const;
  [[nodiscard]] at::Tensor round_trip(const at::Tensor& wide, const at::Tensor& scale) const;

  Fp8Config config_;
  Fp8Operand operand_;
  at::Tensor history_;
  at::Tensor collected_;
};

// Number of features that share a scale; 0 where a whole tensor does.
[[nodiscard]] std::int64_t fp8_block(Fp8Recipe recipe);

}  // namespace megatron_mini
