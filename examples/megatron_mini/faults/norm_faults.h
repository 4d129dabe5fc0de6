// Wrong layer norms that several tables use.
#pragma once

#include "../layers.h"

namespace megatron_mini::faults {

// The gradient of the weight is multiplied by a factor; 1 is right.
class ScalesWeightGradient : public LayerNorm {
 public:
  ScalesWeightGradient(double factor, const Blueprint& blueprint)
      : LayerNorm(blueprint), factor_(factor) {}

 protected:
  [[nodiscard]] at::Tensor weight_in(at::ScalarType type) const override;

 private:
  double factor_;
};

}  // namespace megatron_mini::faults
