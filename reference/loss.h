// What is minimised: the mean over all tokens of a step of -log p(label).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace ttrace::reference {

// Cross entropy of each token, log(sum_v e^logit[v]) - logit[label], in high precision
// (precision.h). logits [S, B, V], labels [B, S] -> [S, B].
[[nodiscard]] at::Tensor cross_entropy(const at::Tensor& logits, const at::Tensor& labels);

// A micro-batch's part of the step's mean, a scalar: sum(per_token) / (S B M). The backwards of all
// M parts add up to the gradient of the mean over all tokens.
[[nodiscard]] at::Tensor share_of_step(const at::Tensor& per_token, std::int64_t micro_batches);

}  // namespace ttrace::reference
