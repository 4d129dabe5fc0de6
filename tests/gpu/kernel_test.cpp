// The kernel for device memory against ttrace::compare.
#include "gpu/require_gpu.h"
#include "trace/sums/cuda/device_statistics.h"
#include "trace/sums/statistics.h"

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

namespace ttrace {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr ElementType kAllTypes[] = {ElementType::kF64,
                                     ElementType::kF32,
                                     ElementType::kF16,
                                     ElementType::kBF16,
                                     ElementType::kI64,
                                     ElementType::kI32,
                                     ElementType::kU8,
                                     ElementType::kBool,
                                     ElementType::kE4M3,
                                     ElementType::kE5M2,
                                     ElementType::kE8M0};

std::string why_no_gpu() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess) {
    return std::string("there is no GPU: ") + cudaGetErrorString(error);
  }
  return count == 0 ? "there is no GPU" : "";
}

void require_success(cudaError_t error) {
  ASSERT_EQ(error, cudaSuccess) << cudaGetErrorString(error);
}

// A tensor on both sides of the bus.
struct Tensor {
  Tensor(ElementType element_type, const std::vector<double>& values)
      : type(element_type),
        count(static_cast<std::int64_t>(values.size())),
        bytes(values.size() * element_size(element_type)) {
    from_double(type, values.data(), count, bytes.data());
    require_success(cudaMalloc(&device, std::max<std::size_t>(bytes.size(), 1)));
    require_success(cudaMemcpy(device, bytes.data(), bytes.size(), cudaMemcpyHostToDevice));
  }
  ~Tensor() { cudaFree(device); }
  Tensor(const Tensor&) = delete;  // owns device memory
  Tensor& operator=(const Tensor&) = delete;

  ElementType type;
  std::int64_t count;
  std::vector<std::byte> bytes;
  void* device = nullptr;
};

std::vector<double> normal_values(std::int64_t count, unsigned seed, double deviation) {
  std::mt19937_64 engine(seed);
  std::normal_distribution<double> distribution(0.0, deviation);
  std::vector<double> values(static_cast<std::size_t>(count));
  std::generate(values.begin(), values.end(), [&] { return distribution(engine); });
  return values;
}

void expect_near(double actual, double expected, double scale) {
  EXPECT_LE(std::abs(actual - expected), 2e-6 * scale) << actual << " instead of " << expected;
}

void expect_same_figures(const Tensor& reference, const Tensor& candidate) {
  const Statistics cpu = compare(reference.type,
                                 reference.bytes.data(),
                                 candidate.type,
                                 candidate.bytes.data(),
                                 reference.count);
  const Statistics gpu = compare_on_device(
      reference.type, reference.device, candidate.type, candidate.device, reference.count);
  EXPECT_EQ(gpu.count, cpu.count);
  EXPECT_EQ(gpu.different, cpu.different);
  EXPECT_EQ(gpu.reference_nonfinite, cpu.reference_nonfinite);
  EXPECT_EQ(gpu.candidate_nonfinite, cpu.candidate_nonfinite);
  EXPECT_EQ(gpu.first_nonfinite, cpu.first_nonfinite);
  EXPECT_EQ(gpu.max_reference, cpu.max_reference);
  // The CPU rounds the differences of f32 to f32.
  EXPECT_EQ(static_cast<float>(gpu.max_difference), static_cast<float>(cpu.max_difference));
  const double size = std::sqrt(cpu.reference_squared * cpu.candidate_squared);
  expect_near(gpu.reference_squared, cpu.reference_squared, cpu.reference_squared);
  expect_near(gpu.candidate_squared, cpu.candidate_squared, cpu.candidate_squared);
  expect_near(gpu.product, cpu.product, size);
  expect_near(gpu.difference_squared, cpu.difference_squared, cpu.difference_squared);
  expect_near(gpu.difference,
              cpu.difference,
              std::sqrt(cpu.difference_squared * static_cast<double>(cpu.count)));
  EXPECT_EQ(gpu.nodes.size(), cpu.nodes.size());
}

TEST(DeviceStatistics, EveryPairOfTypesGivesTheFiguresOfTheCpu) {
  TTRACE_NEED_GPU(why_no_gpu());
  const std::vector<double> values = normal_values(5 * kStatisticsBlock + 77, 1, 40.0);
  std::vector<double> others = values;
  for (std::size_t i = 0; i < others.size(); ++i) {
    others[i] += 0.01 * static_cast<double>(i % 400);
  }
  for (const ElementType reference_type : kAllTypes) {
    for (const ElementType candidate_type : kAllTypes) {
      SCOPED_TRACE(std::string(name_of(reference_type)) + " " +
                   std::string(name_of(candidate_type)));
      expect_same_figures(Tensor(reference_type, values), Tensor(candidate_type, others));
    }
  }
}

TEST(DeviceStatistics, EveryLengthAroundABlockGivesTheFiguresOfTheCpu) {
  TTRACE_NEED_GPU(why_no_gpu());
  for (const std::int64_t count : {0, 1, 31, 255, 257, 1023, 1024, 1025, 2047, 2049, 100'000}) {
    SCOPED_TRACE(count);
    expect_same_figures(Tensor(ElementType::kBF16, normal_values(count, 2, 1.0)),
                        Tensor(ElementType::kBF16, normal_values(count, 3, 1.0)));
  }
}

TEST(DeviceStatistics, NonfiniteElementsAreCountedAndLeftOutOfTheSums) {
  TTRACE_NEED_GPU(why_no_gpu());
  std::vector<double> r = normal_values(3000, 4, 1.0);
  std::vector<double> c = normal_values(3000, 5, 1.0);
  r[5] = c[5] = kNaN;
  r[6] = c[6] = kInfinity;
  r[7] = kInfinity;
  c[2500] = -kInfinity;
  c[1400] = kNaN;
  r[8] = 0.0;
  c[8] = -0.0;
  for (const ElementType type : {ElementType::kF64, ElementType::kF32, ElementType::kBF16}) {
    expect_same_figures(Tensor(type, r), Tensor(type, c));
  }
}

TEST(DeviceStatistics, FirstOfSeveralLargestDifferencesIsNamed) {
  TTRACE_NEED_GPU(why_no_gpu());
  std::vector<double> values(4 * kStatisticsBlock, 1.0);
  const Tensor reference(ElementType::kF32, values);
  values[3000] = 3.0;
  values[2100] = -1.0;
  values[2101] = 3.0;
  const Tensor candidate(ElementType::kF32, values);
  const Statistics s = compare_on_device(
      reference.type, reference.device, candidate.type, candidate.device, reference.count);
  EXPECT_EQ(s.max_difference, 2.0);
  EXPECT_EQ(s.max_index, 2100);
}

TEST(DeviceStatistics, TwoRunsGiveTheSameBits) {
  TTRACE_NEED_GPU(why_no_gpu());
  const Tensor reference(ElementType::kF32, normal_values(1'000'000, 6, 1.0));
  const Tensor candidate(ElementType::kF32, normal_values(1'000'000, 7, 1.0));
  const auto once = [&] {
    return compare_on_device(
        reference.type, reference.device, candidate.type, candidate.device, reference.count);
  };
  const Statistics first = once();
  const Statistics second = once();
  EXPECT_EQ(first.reference_squared, second.reference_squared);
  EXPECT_EQ(first.product, second.product);
  EXPECT_EQ(first.difference, second.difference);
}

TEST(DeviceStatistics, SplitAtBlocksMergesToTheBitsOfOnePass) {
  TTRACE_NEED_GPU(why_no_gpu());
  constexpr std::int64_t kCount = 7 * kStatisticsBlock + 9;
  constexpr std::int64_t kSplit = 3 * kStatisticsBlock;
  const Tensor reference(ElementType::kF32, normal_values(kCount, 8, 1.0));
  const Tensor candidate(ElementType::kF32, normal_values(kCount, 9, 1.0));
  const auto range = [&](std::int64_t begin, std::int64_t end) {
    return compare_on_device(reference.type,
                             static_cast<const float*>(reference.device) + begin,
                             candidate.type,
                             static_cast<const float*>(candidate.device) + begin,
                             end - begin,
                             begin);
  };
  Statistics merged = range(0, kSplit);
  merged.merge(range(kSplit, kCount));
  const Statistics whole = range(0, kCount);
  EXPECT_EQ(merged.difference_squared, whole.difference_squared);
  EXPECT_EQ(merged.difference, whole.difference);
  EXPECT_EQ(merged.max_index, whole.max_index);
}

TEST(DeviceStatistics, NegativeCountIsRefused) {
  EXPECT_ANY_THROW(static_cast<void>(
      compare_on_device(ElementType::kF32, nullptr, ElementType::kF32, nullptr, -1)));
}

}  // namespace
}  // namespace ttrace
