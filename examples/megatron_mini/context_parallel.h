// Which tokens of a sequence a context-parallel rank holds.
//
// The sequence is cut into 2 cp chunks, of which rank r holds r and 2 cp - 1 - r: with causal
// attention every rank then has equally much to do. The cut ignores where packed documents begin
// and end, so that they may have any length; Megatron-LM cuts each document like that, for which
// their lengths must be multiples of 2 cp.
//
// Source: Megatron-LM, get_batch_on_this_cp_rank.
#pragma once

#include "collectives.h"

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace megatron_mini {

// Numbers of the rows that rank `rank` of `cp` holds, ascending: [sequence / cp] i64 on `device`.
// Requires: 2 cp divides `sequence`, or cp is 1.
[[nodiscard]] at::Tensor zigzag_rows(std::int64_t sequence,
                                     int cp,
                                     int rank,
                                     c10::Device device = at::kCPU);

}  // namespace megatron_mini
