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

// Cross entropy of each token, - sum_v q[v] log p[v] with p = softmax(logits), in high precision
// (precision.h). q is 1 at the label; with smoothing e it is 1 - e there and e / (V - 1) at every
// other token. logits [S, B, V], labels [B, S] -> [S, B].
// Source: Szegedy et al., "Rethinking the inception architecture" (2016), section 7, where the
// label itself gets a share as well.
[[nodiscard]] at::Tensor cross_entropy(const at::Tensor& logits,
                                       const at::Tensor& labels,
                                       double smoothing = 0.0);

// What one of M micro-batches goes backward from, a scalar, so that gradients only add up.
// per_token [S, B], counts [B, S] bool: which of them count.
[[nodiscard]] at::Tensor share_of_step(const at::Tensor& per_token,
                                       const at::Tensor& counts,
                                       Loss loss,
                                       std::int64_t micro_batches);

}  // namespace ttrace::reference
