#include "faulty_loss.h"

#include "batch.h"

#include <ATen/ATen.h>

namespace megatron_mini {

double loss_factor(const Bugs& bugs,
                   const Config& config,
                   const Parallel& parallel,
                   const TextData& text,
                   const SampleKey& microbatch) {
  const std::int64_t count = config.data.micro_batches;
  const std::int64_t dp = parallel.dp.size;
  // Number of tokens that count, in every `stride`-th micro-batch from `first` to before `end`.
  const auto tokens = [&](std::int64_t first, std::int64_t end, std::int64_t stride) {
    double sum = 0.0;
    SampleKey key = microbatch;
    for (key.microbatch = first; key.microbatch < end; key.microbatch += stride) {
      sum += load_batch(text, config.data, key).loss_mask.sum().item<double>();
    }
    return sum;
  };
  if (bugs.on("cp-loss-factor")) {
    return bugs.size(parallel.cp.size);
  }
  if (bugs.on("cp-factor-per-token")) {
    return bugs.size(parallel.cp.size);
  }
  // Gradients will be divided by the number of tokens of the step.
  if (bugs.on("mean-of-means")) {
    const double own = tokens(microbatch.microbatch, microbatch.microbatch + 1, 1);
    return tokens(0, count, 1) / (own * static_cast<double>(count));
  }
  if (bugs.on("mean-of-ranks")) {
    const double of_rank = tokens(parallel.dp.rank, count, dp);
    return tokens(0, count, 1) / (of_rank * static_cast<double>(dp));
  }
  return 1.0;
}

}  // namespace megatron_mini
