// Cross entropy over a vocabulary that is spread over tensor-parallel ranks.
#pragma once

#include "collectives.h"

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace megatron_mini {

// This rank's columns of the logits.
struct VocabularyPart {
  std::int64_t first = 0;    // logical index of the first column
  std::int64_t logical = 0;  // size of the vocabulary without padding: columns behind it are masked
  double smoothing = 0.0;    // of labels: probability that is spread over all other tokens
};

// The denominators [s, b] from this rank's addends [s, b]: their sum over the ranks.
[[nodiscard]] at::Tensor sum_of_denominators(const at::Tensor& addends, const Group& group);
using DenominatorSum = at::Tensor (*)(const at::Tensor&, const Group&);

// loss = log(sum_j exp(x_j - m)) - (x_label - m) with m = max_j x_j, in f32 (f64 for f64 logits).
// With smoothing e of K tokens and c = e K / (K - 1): (1 - c) loss - c mean_j log p_j, which is the
// cross entropy with a target of 1 - e at the label and e / (K - 1) elsewhere. Megatron-LM's own
// takes the mean over each rank's columns only, which is another number for every tp.
// logits [s, b, columns], labels [s, b] -> [s, b], the same on every rank of the group.
[[nodiscard]] at::Tensor cross_entropy(const at::Tensor& logits,
                                       const at::Tensor& labels,
                                       const VocabularyPart& part,
                                       const Group& group,
                                       DenominatorSum denominators = sum_of_denominators);

}  // namespace megatron_mini
