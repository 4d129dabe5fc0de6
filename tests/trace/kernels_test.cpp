// The kernels of trace/kernels, run on the host in several grids, against the routines of the host.
#include "support/host_kernels.h"
#include "support/tensor_bytes.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <string>

namespace ttrace::testing {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr int kGrids[] = {1, 3, 64};  // workers

void expect_same_figures(const TensorAt& reference, const TensorAt& candidate) {
  SCOPED_TRACE(std::string(name_of(reference.type)) + " " + std::string(name_of(candidate.type)) +
               ", " + std::to_string(reference.count) + " elements");
  const Statistics expected =
      compare(reference.type, reference.data(), candidate.type, candidate.data(), reference.count);
  for (const int workers : kGrids) {
    SCOPED_TRACE(std::to_string(workers) + " workers");
    expect_same_bits(
        compare_in_grid(
            workers,
            {reference.type, candidate.type, reference.data(), candidate.data(), reference.count}),
        expected);
  }
}

std::vector<double> near(std::vector<double> values) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] += 0.01 * static_cast<double>(i % 400) * (i % 3 == 0 ? 1.0 : 0.0);
  }
  return values;
}

TEST(CompareKernel, EveryPairOfTypesGivesTheBitsOfTheHost) {
  const std::vector<double> values = normal_values(kGroupElements + 5 * kSumBlock + 77, 1, 40.0);
  const std::vector<double> others = near(values);
  for (const ElementType reference : kAllElementTypes) {
    for (const ElementType candidate : kAllElementTypes) {
      expect_same_figures(TensorAt(reference, values), TensorAt(candidate, others));
    }
  }
}

TEST(CompareKernel, EveryLengthAroundABlockAndAGroupGivesTheBitsOfTheHost) {
  std::vector<std::int64_t> counts = {0, 1, 15, 16, 17, 1023, 1024, 1025, 2049, 13 * 1024};
  for (const std::int64_t groups : {1, 2, 7}) {
    for (const std::int64_t more : {-1, 0, 1, 1024}) {
      counts.push_back(groups * kGroupElements + more);
    }
  }
  for (const std::int64_t count : counts) {
    const std::vector<double> values = normal_values(count, 2);
    for (const ElementType type : {ElementType::kBF16, ElementType::kF32, ElementType::kF64}) {
      expect_same_figures(TensorAt(type, values), TensorAt(type, near(values)));
    }
  }
}

TEST(CompareKernel, AnyAlignmentGivesTheBitsOfTheHost) {
  const std::vector<double> values = normal_values(3000, 3);
  for (const ElementType type : kAllElementTypes) {
    for (const std::size_t skip : {1U, 2U, 6U}) {
      expect_same_figures(TensorAt(type, values, skip), TensorAt(type, near(values), 2 * skip));
    }
  }
}

TEST(CompareKernel, WhatIsNotFiniteIsCountedAndLeftOut) {
  std::vector<double> r = normal_values(kGroupElements + 3000, 4);
  std::vector<double> c = normal_values(kGroupElements + 3000, 5);
  r[5] = c[5] = kNaN;
  r[6] = c[6] = kInfinity;
  r[7] = kInfinity;
  c[2500] = -kInfinity;
  c[1400] = kNaN;
  c[static_cast<std::size_t>(kGroupElements) + 9] = kNaN;
  r[8] = 0.0;
  c[8] = -0.0;
  for (const ElementType reference : kAllElementTypes) {
    for (const ElementType candidate : kAllElementTypes) {
      expect_same_figures(TensorAt(reference, r), TensorAt(candidate, c));
    }
  }
  const std::vector<double> all(2000, kNaN);
  expect_same_figures(TensorAt(ElementType::kF32, all), TensorAt(ElementType::kF32, all));
}

// Blocks whose squares leave the range of f32, on either side, are summed again in double.
TEST(CompareKernel, TinyAndHugeValuesGiveTheBitsOfTheHost) {
  for (const double size : {1e-44, 1e-30, 1e-15, 1e19, 1e37, 1e-310, 1e-160, 1e160, 1e308}) {
    const std::vector<double> values = normal_values(3 * kSumBlock + 11, 6, size);
    std::vector<double> others = values;
    others[2000] *= 0.5;
    for (const ElementType type : {ElementType::kF64, ElementType::kF32, ElementType::kBF16}) {
      expect_same_figures(TensorAt(type, values), TensorAt(type, others));
    }
  }
}

TEST(CompareKernel, ZerosOfEitherSignGiveTheBitsOfTheHost) {
  const std::vector<double> zeros(5000, 0.0);
  const std::vector<double> minus(5000, -0.0);
  std::vector<double> one = zeros;
  one[4100] = 1.0;
  for (const ElementType type : kAllElementTypes) {
    for (const auto& reference : {zeros, minus, one}) {
      for (const auto& candidate : {zeros, minus, one}) {
        expect_same_figures(TensorAt(type, reference), TensorAt(type, candidate));
      }
    }
  }
}

TEST(CompareKernel, FirstOfSeveralLargestDifferencesIsNamed) {
  std::vector<double> values(static_cast<std::size_t>(3 * kGroupElements), 1.0);
  const TensorAt reference(ElementType::kF32, values);
  const auto first = static_cast<std::size_t>(kGroupElements) + 2100;
  values[first + 900] = 3.0;
  values[first] = -1.0;
  values[first + 1] = 3.0;
  values[2 * first] = 3.0;
  const TensorAt candidate(ElementType::kF32, values);
  expect_same_figures(reference, candidate);
  const Statistics s = compare_in_grid(
      5, {reference.type, candidate.type, reference.data(), candidate.data(), reference.count});
  EXPECT_EQ(s.max_difference, 2.0);
  EXPECT_EQ(s.max_index, static_cast<std::int64_t>(first));
}

// Two such integers are the same double.
TEST(CompareKernel, IntegersBeyondDoublesDiffer) {
  std::vector<std::int64_t> r(3000, (std::int64_t{1} << 53) + 2);
  std::vector<std::int64_t> c = r;
  c[1500] += 1;
  c[2999] += 1;
  const Statistics s =
      compare_in_grid(2, {ElementType::kI64, ElementType::kI64, r.data(), c.data(), 3000});
  expect_same_bits(s, compare(ElementType::kI64, r.data(), ElementType::kI64, c.data(), 3000));
  EXPECT_EQ(s.different, 2);
}

// --- slices --------------------------------------------------------------------------------------

void expect_same_slices(const std::vector<std::int64_t>& shape,
                        const TensorAt& reference,
                        const TensorAt& other) {
  const Slices expected = sum_slices(
      shape, reference.type, reference.data(), other.type, other.data(), SliceDetail::kDifferences);
  for (const int workers : kGrids) {
    SCOPED_TRACE(::testing::PrintToString(shape) + ", " + std::to_string(workers) + " workers");
    expect_same_bits(
        sum_slices_in_grid(
            workers,
            shape,
            {reference.type, other.type, reference.data(), other.data(), reference.count}),
        expected);
  }
}

TEST(SliceKernels, EveryShapeGivesTheBitsOfTheHost) {
  const std::vector<std::vector<std::int64_t>> shapes = {{},
                                                         {1},
                                                         {0, 4},
                                                         {1111},
                                                         {5, 7},
                                                         {7, 1},
                                                         {3, 5, 1300},
                                                         {4, 1, 513, 1},
                                                         {2, 3, 2, 511},
                                                         {2, kMostSlices + 1},
                                                         {kMostSlices + 1, 2}};
  for (const auto& shape : shapes) {
    std::int64_t count = 1;
    for (const std::int64_t size : shape) {
      count *= size;
    }
    const std::vector<double> values = normal_values(count, 7);
    expect_same_slices(
        shape, TensorAt(ElementType::kBF16, values), TensorAt(ElementType::kBF16, near(values)));
    expect_same_slices(
        shape, TensorAt(ElementType::kF32, values), TensorAt(ElementType::kF64, near(values), 3));
  }
}

TEST(SliceKernels, WhatIsNotFiniteIsLeftOut) {
  std::vector<double> r = normal_values(24 * 600, 8);
  std::vector<double> c = near(r);
  r[17] = kInfinity;
  c[18] = kNaN;
  r[700] = c[700] = kInfinity;
  for (const ElementType type : {ElementType::kF64, ElementType::kF32, ElementType::kF16}) {
    expect_same_slices({4, 6, 600}, TensorAt(type, r), TensorAt(type, c));
  }
}

// --- digest --------------------------------------------------------------------------------------

Digest digest_of_tensor(const TensorAt& tensor) {
  return digest_of(tensor.data(), tensor.size());
}

TEST(DigestKernel, EveryGridGivesTheDigestOfOneThread) {
  for (const std::int64_t count : {0, 1, 7, 8, 9, 511, 512, 513, 1024, 5000, 77'777}) {
    for (const std::size_t skip : {0U, 8U, 1U}) {
      const TensorAt tensor(ElementType::kF64, normal_values(count, 9), skip);
      for (const int workers : kGrids) {
        EXPECT_EQ(digest_in_grid(workers, tensor.data(), tensor.size()), digest_of_tensor(tensor));
      }
    }
  }
  const TensorAt odd(ElementType::kU8, normal_values(2 * kDigestBlock + 13, 10, 50.0));
  EXPECT_EQ(digest_in_grid(5, odd.data(), odd.size()), digest_of_tensor(odd));
}

// A sum or an exclusive-or of the elements is the same for all of these.
TEST(Digest, SeesThatElementsChangedPlaces) {
  const std::vector<double> values = normal_values(4 * 2048, 11);  // 16 blocks of 4 KiB in f64
  const Digest digest = digest_of_tensor(TensorAt(ElementType::kF64, values));
  const auto swapped = [&](std::size_t a, std::size_t b, std::size_t count) {
    std::vector<double> others = values;
    std::swap_ranges(others.begin() + static_cast<std::ptrdiff_t>(a),
                     others.begin() + static_cast<std::ptrdiff_t>(a + count),
                     others.begin() + static_cast<std::ptrdiff_t>(b));
    return digest_of_tensor(TensorAt(ElementType::kF64, others));
  };
  EXPECT_FALSE(swapped(0, 1, 1) == digest);      // within 16 bytes
  EXPECT_FALSE(swapped(0, 2, 2) == digest);      // whole packs
  EXPECT_FALSE(swapped(511, 512, 1) == digest);  // across the border of a block
  EXPECT_FALSE(swapped(0, 512, 512) == digest);  // whole blocks
  EXPECT_FALSE(swapped(512, 4096, 1024) == digest);
  EXPECT_TRUE(swapped(5, 5, 3) == digest);
}

TEST(Digest, SeesEveryBitAndTheLength) {
  std::vector<std::byte> bytes(2 * static_cast<std::size_t>(kDigestBlock) + 5, std::byte{0});
  const auto size = [&] { return static_cast<std::int64_t>(bytes.size()); };
  const Digest digest = digest_of(bytes.data(), size());
  EXPECT_FALSE(digest_of(bytes.data(), size() - 1) == digest);
  EXPECT_FALSE(digest_of(bytes.data(), 0) == digest);
  for (const std::size_t at : {0U, 15U, 16U, 4095U, 4096U, 8191U, 8196U}) {
    for (unsigned bit = 0; bit < 8; ++bit) {
      bytes[at] ^= std::byte{1} << bit;
      EXPECT_FALSE(digest_of(bytes.data(), size()) == digest) << at << " " << bit;
      bytes[at] ^= std::byte{1} << bit;
    }
  }
}

// Stored digests would change their meaning.
TEST(Digest, IsThatOfVersionOne) {
  std::vector<std::uint8_t> bytes(10'000);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<std::uint8_t>(i * 7 % 251);
  }
  const Digest digest = digest_of(bytes.data(), 10'000);
  EXPECT_EQ(digest.low, 0x20b56c1acd092a03U);
  EXPECT_EQ(digest.high, 0x8b5c973a675ab0f2U);
}

}  // namespace
}  // namespace ttrace::testing
