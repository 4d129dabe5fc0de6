// The kernels of libttrace_cuda.so against the routines of the host, in every bit.
#include "gpu/cuda.h"
#include "hooks/device/kernel_registry.h"
#include "support/host_kernels.h"
#include "support/tensor_bytes.h"

#include <ttrace/error.h>

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <cstring>
#include <limits>
#include <string>

namespace ttrace::testing {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

const DeviceKernels& cuda_kernels() {
  const DeviceKernels* const kernels = kernels_of({c10::DeviceType::CUDA, 0});
  TTRACE_CHECK(kernels != nullptr, UsageError, "there are no CUDA kernels; the log says why");
  return *kernels;
}

// The bytes of a tensor on the GPU. An allocation starts at a multiple of 256 bytes; `skip` comes
// on top of that.
class OnGpu {
 public:
  explicit OnGpu(const TensorAt& tensor, std::int64_t skip = 0)
      : skip_(skip),
        bytes_(at::empty({tensor.size() + skip}, at::TensorOptions(at::kCUDA).dtype(at::kByte))) {
    auto* const host = const_cast<void*>(tensor.data());  // only read
    bytes_.slice(0, skip).copy_(at::from_blob(host, {tensor.size()}, at::kByte));
  }
  [[nodiscard]] void* data() const {
    return static_cast<std::byte*>(bytes_.mutable_data_ptr()) + skip_;
  }
  [[nodiscard]] std::vector<std::byte> fetch() const {
    const at::Tensor host = bytes_.slice(0, skip_).cpu();
    std::vector<std::byte> result(host.nbytes());
    std::memcpy(result.data(), host.const_data_ptr(), result.size());
    return result;
  }

 private:
  std::int64_t skip_;
  at::Tensor bytes_;
};

void expect_same_figures(const TensorAt& reference,
                         const TensorAt& candidate,
                         std::int64_t skip = 0) {
  SCOPED_TRACE(std::string(name_of(reference.type)) + " " + std::string(name_of(candidate.type)) +
               ", " + std::to_string(reference.count) + " elements");
  const OnGpu r(reference, skip * static_cast<std::int64_t>(element_size(reference.type)));
  const OnGpu c(candidate);
  expect_same_bits(
      cuda_kernels().compare({reference.type, candidate.type, r.data(), c.data(), reference.count}),
      compare(reference.type, reference.data(), candidate.type, candidate.data(), reference.count));
}

std::vector<double> near(std::vector<double> values) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] += 0.01 * static_cast<double>(i % 400);
  }
  return values;
}

TEST(CudaKernels, CompareEveryPairOfTypesAsTheHostDoes) {
  TTRACE_NEED_GPU(why_no_gpu());
  const std::vector<double> values = normal_values(3 * kGroupElements + 77, 1, 40.0);
  for (const ElementType reference : kAllElementTypes) {
    for (const ElementType candidate : kAllElementTypes) {
      expect_same_figures(TensorAt(reference, values), TensorAt(candidate, near(values)));
    }
  }
}

TEST(CudaKernels, CompareEveryLengthAndAlignmentAsTheHostDoes) {
  TTRACE_NEED_GPU(why_no_gpu());
  for (const std::int64_t count : {0, 1, 31, 1023, 1024, 1025, 32'767, 32'768, 32'769, 3'000'001}) {
    const std::vector<double> values = normal_values(count, 2);
    for (const std::int64_t skip : {0, 1, 3}) {
      expect_same_figures(
          TensorAt(ElementType::kBF16, values), TensorAt(ElementType::kBF16, near(values)), skip);
    }
  }
}

TEST(CudaKernels, CompareWhatIsNotFiniteTinyOrHugeAsTheHostDoes) {
  TTRACE_NEED_GPU(why_no_gpu());
  for (const double size : {1.0, 1e-44, 1e-30, 1e19, 1e37, 1e-310, 1e160}) {
    std::vector<double> r = normal_values(40'000, 3, size);
    std::vector<double> c = near(r);
    r[5] = c[5] = kNaN;
    r[6] = kInfinity;
    c[35'000] = -kInfinity;
    c[34'000] = kNaN;
    r[8] = 0.0;
    c[8] = -0.0;
    for (const ElementType type : kAllElementTypes) {
      expect_same_figures(TensorAt(type, r), TensorAt(type, c));
    }
  }
}

TEST(CudaKernels, SumSlicesAsTheHostDoes) {
  TTRACE_NEED_GPU(why_no_gpu());
  const std::vector<std::vector<std::int64_t>> shapes = {
      {}, {1'000'001}, {5, 7}, {3, 5, 1300}, {64, 513, 1}, {2, kMostSlices + 1}, {70'000, 2}};
  for (const auto& shape : shapes) {
    SCOPED_TRACE(::testing::PrintToString(shape));
    std::int64_t count = 1;
    for (const std::int64_t size : shape) {
      count *= size;
    }
    const std::vector<double> values = normal_values(count, 4);
    for (const ElementType type : {ElementType::kBF16, ElementType::kF32, ElementType::kF64}) {
      const TensorAt reference(type, values);
      const TensorAt other(type, near(values));
      const OnGpu r(reference);
      const OnGpu c(other);
      expect_same_bits(
          cuda_kernels().sum_slices(shape, {type, type, r.data(), c.data(), count}),
          sum_slices(shape, type, reference.data(), type, other.data(), SliceDetail::kDifferences));
    }
  }
}

TEST(CudaKernels, PerturbAsTheHostDoes) {
  TTRACE_NEED_GPU(why_no_gpu());
  for (const ElementType type : {ElementType::kF64,
                                 ElementType::kF32,
                                 ElementType::kF16,
                                 ElementType::kBF16,
                                 ElementType::kE4M3,
                                 ElementType::kE5M2,
                                 ElementType::kE8M0}) {
    for (const NoiseClass noise : {NoiseClass::kRounding, NoiseClass::kReduction}) {
      for (const std::int64_t count : {1, 17, 5000, 1'048'576, 1'048'581}) {
        TensorAt expected(type, normal_values(count, 5));
        const auto size = static_cast<std::int64_t>(element_size(type));
        const OnGpu aligned(expected);
        const OnGpu unaligned(expected, size);
        perturb_in_grid(1, type, noise, 6, count, expected.storage.data());
        for (const OnGpu* const moved : {&aligned, &unaligned}) {
          cuda_kernels().perturb(type, noise, 6, count, moved->data());
          EXPECT_TRUE(moved->fetch() == expected.storage)
              << name_of(type) << ", class " << static_cast<int>(noise) << ", " << count;
        }
      }
    }
  }
}

TEST(CudaKernels, DigestAsTheHostDoes) {
  TTRACE_NEED_GPU(why_no_gpu());
  for (const std::int64_t count : {0, 1, 15, 16, 17, 4095, 4096, 4097, 100'000, 20'000'001}) {
    const TensorAt tensor(ElementType::kU8, normal_values(count, 7, 50.0));
    for (const std::int64_t skip : {0, 1}) {
      const OnGpu device(tensor, skip);
      EXPECT_EQ(cuda_kernels().digest(device.data(), count), digest_of(tensor.data(), count));
    }
  }
}

}  // namespace
}  // namespace ttrace::testing
