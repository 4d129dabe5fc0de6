// A wrong weight of a micro-batch's loss in its step.
#pragma once

#include "../trainer.h"
#include "fault.h"

namespace megatron_mini::faults {

// What a rank goes backward from is multiplied by it; 1 is right. `microbatch`: of which `sample`
// is not looked at.
using LossFactor = double (*)(const Size& size,
                              const Plan& plan,
                              const Parallel& parallel,
                              const SampleKey& microbatch);

[[nodiscard]] double times_cp(const Size& size,
                              const Plan& plan,
                              const Parallel& parallel,
                              const SampleKey& microbatch);
// Gradients will be divided by the step's tokens that count, but every micro-batch, or every rank,
// shall have the same weight.
[[nodiscard]] double of_own_tokens(const Size& size,
                                   const Plan& plan,
                                   const Parallel& parallel,
                                   const SampleKey& microbatch);
[[nodiscard]] double of_rank_tokens(const Size& size,
                                    const Plan& plan,
                                    const Parallel& parallel,
                                    const SampleKey& microbatch);

class ScalesLoss : public Trainer {
 public:
  ScalesLoss(const Size& size, LossFactor factor, const Plan& plan, const Parallel& parallel)
      : Trainer(plan, parallel), size_(size), factor_(factor) {}

 protected:
  LossAddend take_loss(const at::Tensor& logits,
                       Running& running,
                       at::Tensor& to_minimise) override;

 private:
  Size size_;
  LossFactor factor_;
};

// Bug::plant of such a bug.
template <LossFactor factor>
void scale_loss(Parts& parts, const Size& size) {
  replace<ScalesLoss>(parts.trainer, size, factor);
}

}  // namespace megatron_mini::faults
