#include "loss.h"

#include "precision.h"

#include <ATen/TensorOperators.h>

namespace ttrace::reference {

at::Tensor cross_entropy(const at::Tensor& logits, const at::Tensor& labels) {
  const at::Tensor log_probability =
      logits.to(high_precision(logits.scalar_type())).log_softmax(-1);  // [S, B, V]
  const at::Tensor index = labels.t().unsqueeze(-1);                    // [S, B, 1]
  return -log_probability.gather(-1, index).squeeze(-1);                // [S, B]
}

at::Tensor share_of_step(const at::Tensor& per_token,
                         const at::Tensor& counts,
                         Loss loss,
                         std::int64_t micro_batches) {
  const at::Tensor sum = per_token.masked_fill(counts.t().logical_not(), 0.0).sum();
  if (loss == Loss::kPerToken) {
    return sum;
  }
  return sum / counts.sum().item<double>() / static_cast<double>(micro_batches);
}

}  // namespace ttrace::reference
