// What goes on between layers that divide the tp ranks in different ways.
//
// Elsewhere a tp rank has the whole stream, or with sequence parallelism its rows of the sequence.
// Within a layer of a smaller TP degree the ranks of LayerRanks::samples have other samples each;
// with sequence parallelism they have the same rows, those that they have together elsewhere.
//
//                    forward                                      backward
//   divide_samples   own samples of all | all-to-all              all-gather | all-to-all
//   join_samples     all-gather | all-to-all                      own samples of all | all-to-all
//
// Source: Miao et al., "Galvatron" (2022), section 4.2, for transformations between the strategies
// of neighbouring layers.
#pragma once

#include "parallel.h"
#include "token_places.h"

#include <ATen/core/Tensor.h>

namespace megatron_mini {

// k ranks of `samples`. [rows, b, h] -> [rows, b/k, h], with sequence parallelism [k rows, b/k, h]
[[nodiscard]] at::Tensor divide_samples(const at::Tensor& stream,
                                        const Parallel& parallel,
                                        const Group& samples);
// The inverse.
[[nodiscard]] at::Tensor join_samples(const at::Tensor& stream,
                                      const Parallel& parallel,
                                      const Group& samples);

// The places of this rank's samples.
[[nodiscard]] TokenPlaces part_of_samples(const TokenPlaces& places, const Group& samples);

}  // namespace megatron_mini
