// The kernel of noise passes, run on the host in several grids, against perturb().
#include "hooks/nudge/perturbation.h"
#include "support/host_kernels.h"
#include "support/tensor_bytes.h"
#include "trace/base/random.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace ttrace::testing {
namespace {

constexpr NoiseClass kClasses[] = {
    NoiseClass::kNone, NoiseClass::kRounding, NoiseClass::kReduction};
constexpr ElementType kNoisyTypes[] = {ElementType::kF64,
                                       ElementType::kF32,
                                       ElementType::kF16,
                                       ElementType::kBF16,
                                       ElementType::kE4M3,
                                       ElementType::kE5M2,
                                       ElementType::kE8M0};

// Values of every size, zeros, subnormals and what is not finite.
std::vector<double> mixed_values(std::int64_t count) {
  std::vector<double> values = normal_values(count, 1);
  const double special[] = {0.0,
                            -0.0,
                            std::numeric_limits<double>::infinity(),
                            std::numeric_limits<double>::quiet_NaN(),
                            5e-324,
                            1e-45,
                            1.79769e308,
                            3.4028235e38,
                            65504.0};
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] *= std::ldexp(1.0, static_cast<int>(i % 40) - 20);
    if (i % 7 == 3) {
      values[i] = special[i / 7 % std::size(special)];
    }
  }
  return values;
}

void expect_same_moves(ElementType type,
                       NoiseClass noise,
                       std::int64_t count,
                       std::size_t skip,
                       const std::vector<int>& grids = {1, 3, 100}) {
  const std::uint64_t seed = 0x123456789abcdefULL + static_cast<std::uint64_t>(count);
  const std::vector<double> values = mixed_values(count);
  TensorAt expected(type, values);
  perturb(type, noise, seed, count, expected.storage.data());
  for (const int workers : grids) {
    TensorAt moved(type, values, skip);
    perturb_in_grid(workers, type, noise, seed, count, moved.storage.data() + skip);
    EXPECT_TRUE(std::equal(expected.storage.begin(),
                           expected.storage.end(),
                           moved.storage.begin() + static_cast<std::ptrdiff_t>(skip)))
        << name_of(type) << ", class " << static_cast<int>(noise) << ", " << count
        << " elements from byte " << skip << ", " << workers << " workers";
  }
}

TEST(NoiseKernel, MovesEveryTypeAsTheHostDoes) {
  for (const ElementType type : kNoisyTypes) {
    for (const NoiseClass noise : kClasses) {
      for (const std::int64_t count : {0, 1, 2, 3, 7, 8, 15, 16, 17, 1023, 1024, 1025, 4099}) {
        expect_same_moves(type, noise, count, 0);
      }
    }
  }
}

// 2^20 elements share a key.
TEST(NoiseKernel, MovesElementsAroundTheBorderOfAChunkAsTheHostDoes) {
  expect_same_moves(ElementType::kF64, NoiseClass::kRounding, kNoiseChunk + 1, 0, {3});
  expect_same_moves(ElementType::kF32, NoiseClass::kReduction, kNoiseChunk + 1030, 0, {100});
  expect_same_moves(ElementType::kBF16, NoiseClass::kRounding, kNoiseChunk, 0, {3});
}

TEST(NoiseKernel, MovesElementsAtAnyAddressAsTheHostDoes) {
  for (const ElementType type : kNoisyTypes) {
    for (const std::size_t skip : {1U, 2U, 8U}) {
      expect_same_moves(type, NoiseClass::kReduction, 2077, skip);
    }
  }
}

// The host's routine shares its arithmetic with the kernel, so both could change together.
TEST(NoiseKernel, MovesAsStoredNoiseTablesWereMade) {
  constexpr std::int64_t kCount = kNoiseChunk + 12'345;
  const auto digest = [&](ElementType type, NoiseClass noise) {
    std::vector<std::uint64_t> bits(static_cast<std::size_t>(kCount));
    for (std::size_t i = 0; i < bits.size(); ++i) {
      bits[i] = random_bits(7, i);
    }
    perturb(type, noise, 42, kCount, bits.data());
    return digest_of(bits.data(), kCount * 8).low;
  };
  EXPECT_EQ(digest(ElementType::kF64, NoiseClass::kRounding), 0xacf5c189a3d8d5a2U);
  EXPECT_EQ(digest(ElementType::kF64, NoiseClass::kReduction), 0xb74f95f21b78baf5U);
  EXPECT_EQ(digest(ElementType::kF32, NoiseClass::kRounding), 0x9416f636cb1bea37U);
  EXPECT_EQ(digest(ElementType::kF32, NoiseClass::kReduction), 0x909c61ccacf5c131U);
  EXPECT_EQ(digest(ElementType::kF16, NoiseClass::kReduction), 0xa751ee4a99bb4aafU);
  EXPECT_EQ(digest(ElementType::kBF16, NoiseClass::kRounding), 0x7be0578e2f3f83deU);
  EXPECT_EQ(digest(ElementType::kE4M3, NoiseClass::kRounding), 0x9f84e1370dd7b71cU);
  EXPECT_EQ(digest(ElementType::kE5M2, NoiseClass::kRounding), 0xf5316161e242cd97U);
}

TEST(NoiseKernel, RefusesIntegers) {
  std::int32_t value = 1;
  EXPECT_FALSE(
      with_noise_of(ElementType::kI32, NoiseClass::kRounding, [&](auto, auto) { value = 2; }));
  EXPECT_EQ(value, 1);
}

}  // namespace
}  // namespace ttrace::testing
