#include "hooks/nudge/perturbation.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

namespace ttrace {
namespace {

constexpr std::int64_t kCount = (std::int64_t{1} << 20) + 12345;  // more than one chunk

std::vector<float> ones() {
  return std::vector<float>(static_cast<std::size_t>(kCount), 1.5F);
}

std::vector<float> perturbed(NoiseClass noise, std::uint64_t seed) {
  std::vector<float> values = ones();
  perturb(ElementType::kF32, noise, seed, kCount, values.data());
  return values;
}

// The number of units in the last place by which each element moved, at 1.5 in FP32.
std::vector<int> moves(const std::vector<float>& values) {
  std::vector<int> result;
  for (const float value : values) {
    result.push_back(static_cast<int>(std::lround((value - 1.5F) * 8388608.0F)));
  }
  return result;
}

double share(const std::vector<int>& moved, int by) {
  return static_cast<double>(std::count(moved.begin(), moved.end(), by)) /
         static_cast<double>(moved.size());
}

TEST(Perturbation, FlipsAnEighthOfTheElementsEachWayByOneUnit) {
  const std::vector<int> moved = moves(perturbed(NoiseClass::kRounding, 1));
  EXPECT_NEAR(share(moved, 1), 0.125, 0.002);
  EXPECT_NEAR(share(moved, -1), 0.125, 0.002);
  EXPECT_NEAR(share(moved, 0), 0.75, 0.003);
  const double sum = std::accumulate(moved.begin(), moved.end(), 0.0);
  EXPECT_LT(std::abs(sum), 4 * std::sqrt(0.25 * static_cast<double>(kCount)));
}

// 0x34 is 0.75 of E4M3 and 0.25 of E5M2.
TEST(Perturbation, MovesCodesOfOneByteByOneStep) {
  for (const ElementType type : {ElementType::kE4M3, ElementType::kE5M2}) {
    std::vector<std::uint8_t> codes(static_cast<std::size_t>(kCount), 0xb4);
    perturb(type, NoiseClass::kRounding, 1, kCount, codes.data());
    std::vector<int> moved;
    for (const std::uint8_t code : codes) {
      moved.push_back(code - 0xb4);
    }
    EXPECT_NEAR(share(moved, 1), 0.125, 0.002);
    EXPECT_NEAR(share(moved, -1), 0.125, 0.002);
    EXPECT_NEAR(share(moved, 0), 0.75, 0.003);
  }
}

TEST(Perturbation, CodesStayWithinTheFiniteNumbersAndAwayFromZero) {
  // Zero, the smallest number, the largest one, and what is beyond it.
  const std::vector<std::pair<ElementType, std::uint8_t>> largest = {{ElementType::kE4M3, 0x7e},
                                                                     {ElementType::kE5M2, 0x7b}};
  for (const auto& [type, last] : largest) {
    const std::vector<std::uint8_t> codes = {0x00, 0x80, 0x01, last, 0x7f, 0xff};
    bool moved = false;
    for (std::uint64_t seed = 1; seed < 50; ++seed) {
      std::vector<std::uint8_t> after = codes;
      perturb(type, NoiseClass::kRounding, seed, 6, after.data());
      EXPECT_THAT(after,
                  ::testing::ElementsAre(0x00,
                                         0x80,
                                         ::testing::AnyOf(0x01, 0x02),
                                         ::testing::AnyOf(last, last - 1),
                                         0x7f,
                                         0xff));
      moved = moved || after != codes;
    }
    EXPECT_TRUE(moved);
  }
}

TEST(Perturbation, LeavesScalesThatArePowersOfTwo) {
  std::vector<std::uint8_t> codes(1000, 120);
  perturb(ElementType::kE8M0, NoiseClass::kRounding, 1, 1000, codes.data());
  EXPECT_EQ(codes, std::vector<std::uint8_t>(1000, 120));
}

TEST(Perturbation, ReductionsMoveUniformlyByUpToSixUnits) {
  const std::vector<int> moved = moves(perturbed(NoiseClass::kReduction, 1));
  for (int by = -kReductionUlps; by <= kReductionUlps; ++by) {
    EXPECT_NEAR(share(moved, by), 1.0 / 13, 0.002) << by;
  }
  const double sum = std::accumulate(moved.begin(), moved.end(), 0.0);
  EXPECT_LT(std::abs(sum), 4 * std::sqrt(14.0 * static_cast<double>(kCount)));
}

TEST(Perturbation, FollowsFromTheSeedAlone) {
  EXPECT_EQ(perturbed(NoiseClass::kRounding, 5), perturbed(NoiseClass::kRounding, 5));
  const std::vector<int> first = moves(perturbed(NoiseClass::kRounding, 5));
  const std::vector<int> second = moves(perturbed(NoiseClass::kRounding, 6));
  const double product = std::inner_product(first.begin(), first.end(), second.begin(), 0.0);
  EXPECT_LT(std::abs(product) / (0.25 * static_cast<double>(kCount)), 0.01);
}

TEST(Perturbation, LowPrecisionReductionsFlipByOneUnit) {
  for (const ElementType type : {ElementType::kBF16, ElementType::kF16}) {
    std::vector<std::uint16_t> values(10000, 0xBC01);  // negative and ordinary in both
    perturb(type, NoiseClass::kReduction, 3, 10000, values.data());
    EXPECT_NEAR(static_cast<double>(std::count(values.begin(), values.end(), 0xBC01)), 7500, 200);
    EXPECT_NEAR(static_cast<double>(std::count(values.begin(), values.end(), 0xBC00)), 1250, 150);
    EXPECT_NEAR(static_cast<double>(std::count(values.begin(), values.end(), 0xBC02)), 1250, 150);
  }
}

template <class Float>
void expect_unmoved(ElementType type, Float value) {
  std::vector<Float> values(1000, value);
  perturb(type, NoiseClass::kReduction, 9, 1000, values.data());
  for (const Float result : values) {
    ASSERT_EQ(std::memcmp(&result, &value, sizeof(value)), 0) << value;
  }
}

TEST(Perturbation, ZeroInfinityAndNanStay) {
  for (const double value : {0.0,
                             -0.0,
                             std::numeric_limits<double>::infinity(),
                             -std::numeric_limits<double>::infinity(),
                             std::numeric_limits<double>::quiet_NaN()}) {
    expect_unmoved(ElementType::kF64, value);
    expect_unmoved(ElementType::kF32, static_cast<float>(value));
  }
}

TEST(Perturbation, NothingBecomesInfiniteOrZero) {
  std::vector<float> values(2000, std::numeric_limits<float>::max());
  std::fill(values.begin() + 1000, values.end(), -std::numeric_limits<float>::denorm_min());
  perturb(ElementType::kF32, NoiseClass::kReduction, 2, 2000, values.data());
  for (const float value : values) {
    EXPECT_TRUE(std::isfinite(value));
    EXPECT_NE(value, 0.0F);
  }
}

TEST(Perturbation, OrdersArePermutationsAndNeverTheIdentity) {
  for (std::int64_t samples = 2; samples < 6; ++samples) {
    for (std::uint64_t seed = 0; seed < 50; ++seed) {
      std::vector<std::int64_t> order = sample_order(samples, seed);
      EXPECT_FALSE(std::is_sorted(order.begin(), order.end()));
      std::sort(order.begin(), order.end());
      for (std::size_t i = 0; i < order.size(); ++i) {
        EXPECT_EQ(order[i], static_cast<std::int64_t>(i));
      }
    }
  }
  EXPECT_THAT(sample_order(1, 3), ::testing::ElementsAre(0));
  EXPECT_TRUE(sample_order(0, 3).empty());
}

}  // namespace
}  // namespace ttrace
