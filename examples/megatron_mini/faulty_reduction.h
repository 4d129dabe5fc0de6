// Planted bugs of the reduction of gradients between ranks.
//
// Thread-safety: free functions without shared state.
#pragma once

#include "bugs.h"
#include "config.h"
#include "gpt_model.h"
#include "parallel.h"

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace megatron_mini {

// What main gradients are divided by before they are summed over dp and cp. Without a bug: with
// Loss::kMean dp * cp, which the losses were multiplied by, else 1.
[[nodiscard]] double gradient_divisor(Loss loss, const Parallel& parallel, const Bugs& bugs);

// What becomes of a bucket where it is to be summed over dp and cp. All but the first are planted
// bugs: nothing; it is summed over cp only; a BF16 copy is summed that nobody reads.
enum class BucketSum : std::uint8_t { kDone, kSkipped, kOverCp, kOfCopy };
[[nodiscard]] BucketSum bucket_sum(const Parallel& parallel,
                                   std::int64_t iteration,
                                   const Bugs& bugs);
// One of the planted bugs. `ranks`: those that should have summed it.
void sum_wrongly(const at::Tensor& bucket,
                 BucketSum kind,
                 const Group& ranks,
                 const Parallel& parallel);

// How sequence parallelism's addends to the gradient of a replicated parameter are summed over tp.
// Without a bug once, unscaled.
struct SumOverTp {
  bool done = true;
  double factor = 1.0;  // of the sum
};
[[nodiscard]] SumOverTp sum_over_tp(const ModelParameter& parameter, int tp, const Bugs& bugs);

}  // namespace megatron_mini
