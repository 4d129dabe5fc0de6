#include "trace/file/value_figures.h"

#include "instruction_sets.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

namespace ttrace {
namespace {

// Multiples of 1/8 up to 15, which bf16 holds as well as f32. `skip` bytes come first.
std::vector<std::byte> encoded(ElementType type,
                               const std::vector<double>& values,
                               std::size_t skip) {
  std::vector<std::byte> bytes(skip + values.size() * element_size(type));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto single = static_cast<float>(values[i]);
    std::uint32_t bits = 0;
    std::memcpy(&bits, &single, sizeof bits);
    const auto half = static_cast<std::uint16_t>(bits >> 16);
    std::byte* const target = bytes.data() + skip + i * element_size(type);
    if (type == ElementType::kBF16) {
      std::memcpy(target, &half, sizeof half);
    } else {
      std::memcpy(target, &bits, sizeof bits);
    }
  }
  return bytes;
}

// Symptom: the writer read BF16 at half a gigabyte a second, one number at a time, and a traced
// step of a GPU waited for it.
TEST(ValueFigures, IsThatOfAPlainLoopInEveryInstructionSetAndAtEveryAddress) {
  std::mt19937 random(1);
  for (const std::size_t count : {0, 1, 1023, 1024, 1025, 5000}) {
    std::vector<double> values(count);
    double squares = 0.0;
    double largest = 0.0;
    for (double& value : values) {
      value = (static_cast<int>(random() % 241) - 120) / 8.0;
      squares += value * value;  // exact
      largest = std::max(largest, std::fabs(value));
    }
    for (const ElementType type : {ElementType::kF32, ElementType::kBF16}) {
      for (const std::size_t skip : {0, 2}) {
        const std::vector<std::byte> bytes = encoded(type, values, skip);
        for (const InstructionSet set : sets_of_this_processor()) {
          const ValueFigures figures = figures_of(type, std::span(bytes).subspan(skip), set);
          EXPECT_EQ(figures.norm, std::sqrt(squares));
          EXPECT_EQ(figures.max_abs, largest);
          EXPECT_EQ(figures.nonfinite, 0U);
        }
      }
    }
  }
}

TEST(ValueFigures, HasTheSameBitsInEveryInstructionSet) {
  std::mt19937 random(2);
  std::vector<std::byte> bytes(4096 * 4);
  for (std::size_t i = 0; i < 4096; ++i) {
    const auto value = static_cast<float>(std::ldexp(random() % 10'000, static_cast<int>(i % 40)));
    std::memcpy(bytes.data() + 4 * i, &value, sizeof value);
  }
  const ValueFigures expected = figures_of(ElementType::kF32, bytes, InstructionSet::kBaseline);
  for (const InstructionSet set : sets_of_this_processor()) {
    EXPECT_EQ(figures_of(ElementType::kF32, bytes, set).norm, expected.norm);
  }
}

TEST(ValueFigures, CountsWhatIsNotFiniteAndLeavesItOut) {
  std::vector<double> values(2048, 1.0);
  values[3] = std::numeric_limits<double>::quiet_NaN();
  values[1500] = std::numeric_limits<double>::infinity();
  values[1600] = -std::numeric_limits<double>::infinity();
  values[1700] = -4.0;
  for (const ElementType type : {ElementType::kF32, ElementType::kBF16}) {
    const std::vector<std::byte> bytes = encoded(type, values, 0);
    for (const InstructionSet set : sets_of_this_processor()) {
      const ValueFigures figures = figures_of(type, bytes, set);
      EXPECT_EQ(figures.nonfinite, 3U);
      EXPECT_EQ(figures.max_abs, 4.0);
      EXPECT_EQ(figures.norm, std::sqrt(2044.0 + 16.0));
    }
  }
}

}  // namespace
}  // namespace ttrace
