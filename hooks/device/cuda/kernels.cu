// libttrace_cuda.so: the kernels of trace/kernels for NVIDIA GPUs. It links neither torch nor the
// rest of TTrace, which opens it at run time.
#include "hooks/device/cuda/functions.h"

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

#define TTRACE_CUDA_API extern "C" __attribute__((visibility("default")))

namespace ttrace {
namespace {

constexpr int kThreads = 256;           // of a block whose threads share nothing
constexpr int kBlocksOfProcessor = 16;  // enough to hide the latency of memory

// The threads of one block.
struct BlockTeam {
  template <class Body>
  TTRACE_HOST_DEVICE void each(const Body& body) const {
#if defined(__CUDA_ARCH__)
    body(static_cast<int>(threadIdx.x));
    __syncthreads();
#else
    static_cast<void>(body);
#endif
  }
};

__device__ Grid threads_of_grid() {
  return {std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x,
          std::int64_t{gridDim.x} * blockDim.x};
}

__device__ Grid teams_of_grid() {
  return {std::int64_t{blockIdx.x}, std::int64_t{gridDim.x}};
}

template <class Format, class Random>
__global__ void __launch_bounds__(kThreads)
    perturb_kernel(std::uint64_t seed, std::int64_t count, void* values) {
  perturb_elements<Format, Random>(threads_of_grid(), seed, count, values);
}

__global__ void __launch_bounds__(kDigestThreads)
    digest_kernel(const void* data, std::int64_t bytes, Digest* result) {
  __shared__ Digest memory[kDigestThreads];
  sum_digest(teams_of_grid(), BlockTeam(), memory, data, bytes, [=](const Digest& sum) {
    static_assert(sizeof(unsigned long long) == sizeof(std::uint64_t));
    atomicAdd(reinterpret_cast<unsigned long long*>(&result->low), sum.low);
    atomicAdd(reinterpret_cast<unsigned long long*>(&result->high), sum.high);
  });
}

template <class Source>
__global__ void __launch_bounds__(kCompareThreads)
    compare_kernel(ElementPairs pairs, GroupFigures* figures) {
  __shared__ CompareMemory memory;
  compare_pairs<Source>(teams_of_grid(), BlockTeam(), memory, pairs, figures);
}

__global__ void __launch_bounds__(kSliceThreads) chunk_kernel(RowPairs rows, ChunkSums* sums) {
  __shared__ SliceMemory memory;
  sum_chunks(teams_of_grid(), BlockTeam(), memory, rows, sums);
}

__global__ void __launch_bounds__(kThreads) column_kernel(RowPairs rows, double* sums) {
  sum_columns(threads_of_grid(), rows, sums);
}

cudaStream_t stream_of(void* stream) {
  return static_cast<cudaStream_t>(stream);
}

// Blocks for `units` of work, of which each takes `share`, and no more than keep the GPU busy:
// every kernel loops over the rest.
unsigned blocks_for(std::int64_t units, std::int64_t share) {
  int device = 0;
  int processors = 1;
  static_cast<void>(cudaGetDevice(&device));
  static_cast<void>(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device));
  const std::int64_t most = std::int64_t{processors} * kBlocksOfProcessor;
  const std::int64_t wanted = (units + share - 1) / share;
  return static_cast<unsigned>(wanted < most ? wanted : most);
}

const char* words_for(cudaError_t error) {
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}

// Copies to the host what the kernels before wrote, and waits for it.
cudaError_t fetch(void* stream, void* target, const void* device, std::size_t bytes) {
  const cudaError_t started = cudaGetLastError();
  const cudaError_t copied =
      started != cudaSuccess
          ? started
          : cudaMemcpyAsync(target, device, bytes, cudaMemcpyDeviceToHost, stream_of(stream));
  return copied != cudaSuccess ? copied : cudaStreamSynchronize(stream_of(stream));
}

}  // namespace
}  // namespace ttrace

TTRACE_CUDA_API int ttrace_cuda_version() {
  return TTRACE_CUDA_VERSION;
}

TTRACE_CUDA_API const char* ttrace_cuda_perturb(void* stream,
                                                ttrace::ElementType type,
                                                ttrace::NoiseClass noise,
                                                std::uint64_t seed,
                                                std::int64_t count,
                                                void* device) {
  using namespace ttrace;
  if (count == 0) {
    return nullptr;
  }
  const bool defined = with_noise_of(type, noise, [&](auto format, auto random) {
    constexpr int kPack = kPackBytes / static_cast<int>(sizeof(typename decltype(format)::Bits));
    perturb_kernel<decltype(format), decltype(random)>
        <<<blocks_for(count, std::int64_t{kThreads} * kPack), kThreads, 0, stream_of(stream)>>>(
            seed, count, device);
  });
  return defined ? words_for(cudaGetLastError()) : "noise is not defined for such elements";
}

TTRACE_CUDA_API const char* ttrace_cuda_digest(
    void* stream, const void* device, std::int64_t bytes, void* scratch, ttrace::Digest* result) {
  using namespace ttrace;
  auto* const sum = static_cast<Digest*>(scratch);
  const cudaError_t cleared = cudaMemsetAsync(sum, 0, sizeof(Digest), stream_of(stream));
  if (cleared != cudaSuccess) {
    return words_for(cleared);
  }
  if (bytes > 0) {
    digest_kernel<<<blocks_for(digest_blocks(bytes), 1), kDigestThreads, 0, stream_of(stream)>>>(
        device, bytes, sum);
  }
  const cudaError_t fetched = fetch(stream, result, sum, sizeof(Digest));
  *result = finished_digest(*result, bytes);
  return words_for(fetched);
}

TTRACE_CUDA_API const char* ttrace_cuda_compare(void* stream,
                                                const ttrace::ElementPairs* pairs,
                                                ttrace::GroupFigures* scratch,
                                                ttrace::GroupFigures* result) {
  using namespace ttrace;
  const std::int64_t groups = groups_of(pairs->count);
  if (groups == 0) {
    return nullptr;
  }
  with_source_of(pairs->reference_type, pairs->candidate_type, [&](auto tag) {
    compare_kernel<typename decltype(tag)::Type>
        <<<blocks_for(groups, 1), kCompareThreads, 0, stream_of(stream)>>>(*pairs, scratch);
  });
  return words_for(
      fetch(stream, result, scratch, static_cast<std::size_t>(groups) * sizeof(GroupFigures)));
}

TTRACE_CUDA_API const char* ttrace_cuda_sum_slices(void* stream,
                                                   const ttrace::RowPairs* rows,
                                                   void* scratch,
                                                   ttrace::ChunkSums* chunks,
                                                   double* columns) {
  using namespace ttrace;
  const std::int64_t count = rows->chunks();
  if (count == 0) {
    return nullptr;
  }
  auto* const chunk_sums = static_cast<ChunkSums*>(scratch);
  auto* const column_sums = reinterpret_cast<double*>(chunk_sums + count);
  chunk_kernel<<<blocks_for(count, kChunksOfTeam), kSliceThreads, 0, stream_of(stream)>>>(
      *rows, chunk_sums);
  if (columns != nullptr) {
    column_kernel<<<blocks_for(rows->row, kThreads), kThreads, 0, stream_of(stream)>>>(*rows,
                                                                                       column_sums);
  }
  cudaError_t fetched =
      fetch(stream, chunks, chunk_sums, static_cast<std::size_t>(count) * sizeof(ChunkSums));
  if (fetched == cudaSuccess && columns != nullptr) {
    fetched =
        fetch(stream, columns, column_sums, static_cast<std::size_t>(rows->row) * sizeof(double));
  }
  return words_for(fetched);
}

#define TTRACE_CUDA_MATCHES(name) \
  static_assert(std::is_same<decltype(&name), name##_function>::value, #name)
TTRACE_CUDA_MATCHES(ttrace_cuda_version);
TTRACE_CUDA_MATCHES(ttrace_cuda_perturb);
TTRACE_CUDA_MATCHES(ttrace_cuda_digest);
TTRACE_CUDA_MATCHES(ttrace_cuda_compare);
TTRACE_CUDA_MATCHES(ttrace_cuda_sum_slices);
