#include "loss_faults.h"

#include "../batch.h"

#include <ATen/ATen.h>

#include <cstdint>

namespace megatron_mini::faults {

namespace {

// Number of tokens that count, in every `stride`-th micro-batch from `first` to before `end`.
double tokens_that_count(
    const Plan& plan, SampleKey key, std::int64_t first, std::int64_t end, std::int64_t stride) {
  double sum = 0.0;
  for (key.microbatch = first; key.microbatch < end; key.microbatch += stride) {
    sum += load_batch(plan.text, plan.config.data, key).loss_mask.sum().item<double>();
  }
  return sum;
}

}  // namespace

double times_cp(const Size& size,
                const Plan& /*plan*/,
                const Parallel& parallel,
                const SampleKey& /*microbatch*/) {
  return size(parallel.cp.size);
}

double of_own_tokens(const Size& /*size*/,
                     const Plan& plan,
                     const Parallel& /*parallel*/,
                     const SampleKey& microbatch) {
  const std::int64_t count = plan.config.data.micro_batches;
  const double own =
      tokens_that_count(plan, microbatch, microbatch.microbatch, microbatch.microbatch + 1, 1);
  return tokens_that_count(plan, microbatch, 0, count, 1) / (own * static_cast<double>(count));
}

double of_rank_tokens(const Size& /*size*/,
                      const Plan& plan,
                      const Parallel& parallel,
                      const SampleKey& microbatch) {
  const std::int64_t count = plan.config.data.micro_batches;
  const std::int64_t ranks = parallel.dp.size;
  const double of_rank = tokens_that_count(plan, microbatch, parallel.dp.rank, count, ranks);
  return tokens_that_count(plan, microbatch, 0, count, 1) / (of_rank * static_cast<double>(ranks));
}

Trainer::LossAddend ScalesLoss::take_loss(const at::Tensor& logits,
                                          Running& running,
                                          at::Tensor& to_minimise) {
  const LossAddend addend = Trainer::take_loss(logits, running, to_minimise);
  to_minimise = to_minimise * factor_(size_, plan(), parallel(), running.key);
  return addend;
}

}  // namespace megatron_mini::faults
