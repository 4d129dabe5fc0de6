// The functions of libttrace_cuda.so, as C sees them.
//
// Each takes a cudaStream_t of the calling thread's current device and returns null, or CUDA's own
// words for what failed. Pointers called `device` are into that device's memory; results are
// written to the host's memory, and a function with a result returns when the stream is done.
#pragma once

#include "trace/kernels/chunk_sums.h"
#include "trace/kernels/compare_pairs.h"
#include "trace/kernels/digest.h"
#include "trace/kernels/noise.h"

#include <cstdint>

extern "C" {

// A library of another number has other functions or other kernels.
#define TTRACE_CUDA_VERSION 1
using ttrace_cuda_version_function = int (*)();

using ttrace_cuda_perturb_function = const char* (*)(void* stream,
                                                     ttrace::ElementType type,
                                                     ttrace::NoiseClass noise,
                                                     std::uint64_t seed,
                                                     std::int64_t count,
                                                     void* device);
// `scratch`: 16 bytes of the device.
using ttrace_cuda_digest_function = const char* (*)(void* stream,
                                                    const void* device,
                                                    std::int64_t bytes,
                                                    void* scratch,
                                                    ttrace::Digest* result);
// `scratch` and `result`: groups_of(pairs->count) entries.
using ttrace_cuda_compare_function = const char* (*)(void* stream,
                                                     const ttrace::ElementPairs* pairs,
                                                     ttrace::GroupFigures* scratch,
                                                     ttrace::GroupFigures* result);
// `scratch`: as much memory as both results need, chunks first. `chunks`: rows->chunks() entries.
// `columns`: rows->row entries, or null if they are not wanted.
using ttrace_cuda_sum_slices_function = const char* (*)(void* stream,
                                                        const ttrace::RowPairs* rows,
                                                        void* scratch,
                                                        ttrace::ChunkSums* chunks,
                                                        double* columns);
}
