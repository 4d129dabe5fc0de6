// Wrong attentions that several tables use.
#pragma once

#include "../attention.h"
#include "fault.h"

#include <cmath>

namespace megatron_mini::faults {

// Scores are multiplied by size() / sqrt(d).
class ScalesScores : public Sized<CoreAttention> {
 public:
  using Sized::Sized;

 protected:
  [[nodiscard]] double scale_of_scores(const at::Tensor& query) const override {
    return size() / std::sqrt(static_cast<double>(query.size(3)));
  }
};

}  // namespace megatron_mini::faults
