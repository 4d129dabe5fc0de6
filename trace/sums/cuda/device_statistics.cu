#include "trace/sums/cuda/device_statistics.h"

#include <ttrace/error.h>

#include <cuda_fp16.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <climits>
#include <cub/block/block_reduce.cuh>
#include <utility>
#include <vector>

namespace ttrace {
namespace {

constexpr int kThreads = 256;

// The contribution of one block of kStatisticsBlock elements to Statistics; positions are within
// the block.
struct Part {
  double reference_squared;
  double candidate_squared;
  double product;
  double difference_squared;
  double difference;
  double max_difference;
  double max_reference;
  int max_index;  // of the first largest difference; INT_MAX where all are 0
  int different;
  int reference_nonfinite;
  int candidate_nonfinite;
  int first_nonfinite;  // INT_MAX if there is none
};

struct AddParts {
  __device__ Part operator()(const Part& a, const Part& b) const {
    Part sum = a;
    sum.reference_squared += b.reference_squared;
    sum.candidate_squared += b.candidate_squared;
    sum.product += b.product;
    sum.difference_squared += b.difference_squared;
    sum.difference += b.difference;
    const bool larger = b.max_difference > a.max_difference;
    const bool earlier = b.max_difference == a.max_difference && b.max_index < a.max_index;
    if (larger || earlier) {
      sum.max_difference = b.max_difference;
      sum.max_index = b.max_index;
    }
    sum.max_reference = fmax(a.max_reference, b.max_reference);
    sum.different += b.different;
    sum.reference_nonfinite += b.reference_nonfinite;
    sum.candidate_nonfinite += b.candidate_nonfinite;
    sum.first_nonfinite = min(a.first_nonfinite, b.first_nonfinite);
    return sum;
  }
};

struct Side {
  ElementType type;
  const void* elements;
};

template <class Element>
__device__ Element load(const Side& side, std::int64_t i) {
  return static_cast<const Element*>(side.elements)[i];
}

// E4M3 or E5M2; codes from `overflow` on are Inf or NaN.
__device__ double tiny_float(unsigned code, int mantissa_bits, int bias, unsigned overflow) {
  const unsigned magnitude = code & 0x7f;
  const unsigned mantissa = magnitude & ((1u << mantissa_bits) - 1);
  const int exponent = static_cast<int>(magnitude >> mantissa_bits);
  const unsigned leading = exponent == 0 ? 0 : 1u << mantissa_bits;
  double value =
      ldexp(static_cast<double>(leading | mantissa), max(exponent, 1) - bias - mantissa_bits);
  if (magnitude >= overflow) {
    value = magnitude == 0x7c ? INFINITY : NAN;
  }
  return code < 0x80 ? value : -value;
}

// The branch is the same for all threads.
__device__ double load_double(const Side& side, std::int64_t i) {
  switch (side.type) {
    case ElementType::kF64:
      return load<double>(side, i);
    case ElementType::kF32:
      return load<float>(side, i);
    case ElementType::kF16:
      return __half2float(load<__half>(side, i));
    case ElementType::kBF16:
      return __uint_as_float(static_cast<unsigned>(load<std::uint16_t>(side, i)) << 16);
    case ElementType::kI64:
      return static_cast<double>(load<long long>(side, i));
    case ElementType::kI32:
      return load<int>(side, i);
    case ElementType::kU8:
      return load<std::uint8_t>(side, i);
    case ElementType::kBool:
      return load<std::uint8_t>(side, i) != 0 ? 1.0 : 0.0;
    case ElementType::kE4M3:
      return tiny_float(load<std::uint8_t>(side, i), 3, 7, 0x7f);
    case ElementType::kE5M2:
      return tiny_float(load<std::uint8_t>(side, i), 2, 15, 0x7c);
    case ElementType::kE8M0: {
      const int code = load<std::uint8_t>(side, i);
      return code == 255 ? NAN : ldexp(1.0, code - 127);
    }
  }
  return 0.0;
}

__device__ void add_element(
    const Side& reference, const Side& candidate, std::int64_t i, int position, Part& part) {
  const double r = load_double(reference, i);
  const double c = load_double(candidate, i);
  bool equal = r == c || (isnan(r) && isnan(c));
  if (reference.type == ElementType::kI64 && candidate.type == ElementType::kI64) {
    equal = load<long long>(reference, i) == load<long long>(candidate, i);  // exactly
  }
  part.different += equal ? 0 : 1;
  if (isfinite(r) && isfinite(c)) {
    const double difference = c - r;
    part.reference_squared += r * r;
    part.candidate_squared += c * c;
    part.product += r * c;
    part.difference_squared += difference * difference;
    part.difference += difference;
    part.max_reference = fmax(part.max_reference, fabs(r));
    if (fabs(difference) > part.max_difference) {  // positions ascend within a thread
      part.max_difference = fabs(difference);
      part.max_index = position;
    }
    return;
  }
  part.reference_nonfinite += isfinite(r) ? 0 : 1;
  part.candidate_nonfinite += isfinite(c) ? 0 : 1;
  if (!isfinite(c) && !equal) {
    part.first_nonfinite = min(part.first_nonfinite, position);
  }
}

// Elements [begin, end) of the logical tensor, of which element `first` is at the pointers. One
// thread block per block of statistics.
__global__ void sum_blocks(
    Side reference, Side candidate, std::int64_t first, std::int64_t end, Part* parts) {
  using Reduce = cub::BlockReduce<Part, kThreads>;
  __shared__ typename Reduce::TempStorage storage;
  const std::int64_t block = first / kStatisticsBlock + blockIdx.x;
  Part part{};
  part.max_index = INT_MAX;
  part.first_nonfinite = INT_MAX;
  for (int offset = static_cast<int>(threadIdx.x); offset < kStatisticsBlock; offset += kThreads) {
    const std::int64_t position = block * kStatisticsBlock + offset;
    if (position >= first && position < end) {
      add_element(reference, candidate, position - first, offset, part);
    }
  }
  const Part sum = Reduce(storage).Reduce(part, AddParts());
  if (threadIdx.x == 0) {
    parts[blockIdx.x] = sum;
  }
}

void check(cudaError_t error, const char* action) {
  TTRACE_CHECK(error == cudaSuccess,
               UsageError,
               "cannot ",
               action,
               " on the GPU: ",
               cudaGetErrorString(error));
}

// Device memory of one call.
class DeviceParts {
 public:
  DeviceParts(std::size_t count, cudaStream_t stream) : stream_(stream) {
    check(cudaMallocAsync(&parts_, count * sizeof(Part), stream), "allocate memory");
  }
  ~DeviceParts() { cudaFreeAsync(parts_, stream_); }
  DeviceParts(const DeviceParts&) = delete;  // frees exactly once
  DeviceParts& operator=(const DeviceParts&) = delete;
  [[nodiscard]] Part* get() const { return static_cast<Part*>(parts_); }

 private:
  void* parts_ = nullptr;
  cudaStream_t stream_;
};

std::vector<Part> run(const Side& reference,
                      const Side& candidate,
                      std::int64_t count,
                      std::int64_t first,
                      cudaStream_t stream) {
  const std::int64_t end = first + count;
  const std::int64_t blocks =
      (end + kStatisticsBlock - 1) / kStatisticsBlock - first / kStatisticsBlock;
  TTRACE_CHECK(blocks <= INT_MAX, UsageError, "cannot compare ", count, " elements at once");
  std::vector<Part> parts(static_cast<std::size_t>(blocks));
  const DeviceParts device(parts.size(), stream);
  sum_blocks<<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(
      reference, candidate, first, end, device.get());
  check(cudaGetLastError(), "start the comparison");
  check(
      cudaMemcpyAsync(
          parts.data(), device.get(), parts.size() * sizeof(Part), cudaMemcpyDeviceToHost, stream),
      "read the result");
  check(cudaStreamSynchronize(stream), "compare");
  return parts;
}

// `block` is the number of the first part's block.
Statistics statistics_of(const std::vector<Part>& parts, std::int64_t block) {
  Statistics statistics;
  for (const Part& part : parts) {
    const std::int64_t position = block * kStatisticsBlock;
    statistics.nodes.push_back({block,
                                0,
                                part.reference_squared,
                                part.candidate_squared,
                                part.product,
                                part.difference_squared,
                                part.difference});
    if (part.max_difference > statistics.max_difference) {
      statistics.max_difference = part.max_difference;
      statistics.max_index = position + part.max_index;
    }
    statistics.max_reference = std::max(statistics.max_reference, part.max_reference);
    statistics.different += part.different;
    statistics.reference_nonfinite += part.reference_nonfinite;
    statistics.candidate_nonfinite += part.candidate_nonfinite;
    if (statistics.first_nonfinite < 0 && part.first_nonfinite != INT_MAX) {
      statistics.first_nonfinite = position + part.first_nonfinite;
    }
    ++block;
  }
  return statistics;
}

}  // namespace

Statistics compare_on_device(ElementType reference_type,
                             const void* reference,
                             ElementType candidate_type,
                             const void* candidate,
                             std::int64_t count,
                             std::int64_t first,
                             CUstream_st* stream) {
  TTRACE_CHECK(count >= 0 && first >= 0,
               UsageError,
               "cannot compare ",
               count,
               " elements from position ",
               first,
               " on: neither may be negative");
  Statistics result;
  if (count > 0) {
    Statistics blocks = statistics_of(
        run({reference_type, reference}, {candidate_type, candidate}, count, first, stream),
        first / kStatisticsBlock);
    blocks.count = count;
    result.merge(blocks);  // joins the blocks along the tree and adds them up
  }
  return result;
}

}  // namespace ttrace
