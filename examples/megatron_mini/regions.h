// The borders of a tensor-parallel region, each with the transposed communication in its backward.
//
// With tp alone, activations between regions are whole on every rank; with sequence parallelism
// each rank holds its rows of the sequence, which is dimension 0.
//
//               forward                         backward
//   enter       nothing       | all-gather      all-reduce | reduce-scatter
//   leave       all-reduce    | reduce-scatter  nothing    | all-gather
//
// Source: Shoeybi et al., "Megatron-LM" (2019), section 3; Korthikanti et al., "Reducing Activation
// Recomputation in Large Transformer Models" (2022), section 4.2.2.
#pragma once

#include "parallel.h"

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace megatron_mini {

// What happens to the addends that the ranks of a group hold. With kSkipped a rank uses its
// own (with sequence parallelism: with its rows of it), because every rank has computed the whole.
enum class SumOverRanks : std::uint8_t { kDone, kSkipped };

// [s/tp or s, b, h] -> [s, b, h]; `backward_sum`: of the input's gradient.
[[nodiscard]] at::Tensor enter_region(const at::Tensor& input,
                                      const Parallel& parallel,
                                      SumOverRanks backward_sum = SumOverRanks::kDone);

// Addends [s, b, h] -> their sum [s/tp or s, b, h]; `forward_sum`: of the addends.
[[nodiscard]] at::Tensor leave_region(const at::Tensor& addend,
                                      const Parallel& parallel,
                                      SumOverRanks forward_sum = SumOverRanks::kDone);

// Joins the ranks' features, the last dimension: [s, b, f] -> [s, b, tp * f]; backward sums what
// the ranks' uses of a feature give and hands it to the rank that has it.
[[nodiscard]] at::Tensor gather_features(const at::Tensor& input, const Parallel& parallel);

}  // namespace megatron_mini
