// ttrace::compare for tensors in the memory of an NVIDIA GPU, in one pass over both.
//
// Blocks and their tree are those of ttrace/statistics.h, so results merge with those of other
// parts and of the CPU. Within a block sums are in double and in the order of a block-wide
// reduction of fixed shape: repeatable, and equal to the CPU's up to the order of summation (and
// to the CPU's f32 lanes). Counts, maxima and positions are equal.
//
// Thread-safety: a free function without shared state; call from any thread.
#pragma once

#include "trace/sums/statistics.h"

#include <ttrace/element_type.h>

#include <cstdint>

struct CUstream_st;  // cudaStream_t is a pointer to it

namespace ttrace {

// Pointers into memory of the current device, aligned for their element types. Runs on `stream`
// after what is queued there and returns when it is done. Throws UsageError with CUDA's own words
// where a call fails.
[[nodiscard]] Statistics compare_on_device(ElementType reference_type,
                                           const void* reference,
                                           ElementType candidate_type,
                                           const void* candidate,
                                           std::int64_t count,
                                           std::int64_t first = 0,
                                           CUstream_st* stream = nullptr);

}  // namespace ttrace
