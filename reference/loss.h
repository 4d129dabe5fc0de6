// What is minimised: a mean of -log p(label) over the tokens that count.
//
//   mean:       1/M sum over micro-batches m of (sum of its losses / its number of tokens)
//   per_token:  sum over micro-batches of the sum of its losses / number of tokens of the step
//
// The losses of routers (moe.h), with their weights, are added to a micro-batch's own: to the mean,
// or, times the number of its tokens that count, to the sum.
//
// The number of tokens of the step is known at its end only; so with per_token a micro-batch goes
// backward from its sum, and main gradients are divided at the end.
#pragma once

#include "config.h"

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace ttrace::reference {

// Cross entropy of each token, log(sum_v e^logit[v]) - logit[label], in high precision
// (precision.h). logits [S, B, V], labels [B, S] -> [S, B].
[[nodiscard]] at::Tensor cross_entropy(const at::Tensor& logits, const at::Tensor& labels);

// What one of M micro-batches goes backward from, a scalar, so that gradients only add up.
// per_token [S, B], counts [B, S] bool: which of them count.
[[nodiscard]] at::Tensor share_of_step(const at::Tensor& per_token,
                                       const at::Tensor& counts,
                                       Loss loss,
                                       std::int64_t micro_batches);

}  // namespace ttrace::reference
