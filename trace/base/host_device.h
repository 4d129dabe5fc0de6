// Marks functions that run on the host and, compiled by nvcc, on a GPU, too.
//
// Such functions are C++17 and use nothing of the standard library but its integer types.
#pragma once

#if defined(__CUDACC__)
#define TTRACE_HOST_DEVICE __host__ __device__
#define TTRACE_KERNEL __host__ __device__ __forceinline__
#else
#define TTRACE_HOST_DEVICE
#define TTRACE_KERNEL [[gnu::always_inline]] inline
#endif
