#include "trace/sums/moments.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <vector>

namespace ttrace {
namespace {

using Shape = std::vector<std::int64_t>;

std::vector<float> wave_of(const Shape& shape, double phase) {
  std::int64_t count = 1;
  for (const std::int64_t size : shape) {
    count *= size;
  }
  std::vector<float> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(std::sin(1.3 * static_cast<double>(i) + phase));
  }
  return values;
}

TensorBytes bytes_of(const std::vector<float>& values) {
  return {ElementType::kF32, reinterpret_cast<const std::byte*>(values.data())};
}

// One walk takes the place of several, so it must not change a bit of any of them: rows may end
// within a step, a row may be longer than one, and there may be no rows at all.
TEST(Moments, HaveTheBitsOfTheSumsThatTheyTakeThePlaceOf) {
  for (const Shape& shape : {Shape{},
                             Shape{0, 3},
                             Shape{17},
                             Shape{40000},
                             Shape{300, 100},
                             Shape{3, 30000},
                             Shape{5, 7, 1000, 1},
                             Shape{2, 20000, 3}}) {
    const std::vector<float> r = wave_of(shape, 0.1);
    const std::vector<float> a = wave_of(shape, 0.1001);
    const std::vector<float> b = wave_of(shape, 0.2);
    const std::array pairs = {SummedPair{bytes_of(r), bytes_of(a), true},
                              SummedPair{bytes_of(r), bytes_of(b), false},
                              SummedPair{bytes_of(a), bytes_of(b), true}};
    const std::vector<Moments> found = moments_of(shape, pairs);
    ASSERT_EQ(found.size(), 3U);
    EXPECT_TRUE(found[1].slices.sums.empty());
    const auto expect_equal = [&](const Moments& moments,
                                  const std::vector<float>& left,
                                  const std::vector<float>& right) {
      const auto count = static_cast<std::int64_t>(left.size());
      const Statistics all =
          compare(ElementType::kF32, left.data(), ElementType::kF32, right.data(), count);
      EXPECT_EQ(moments.all.count, all.count);
      EXPECT_EQ(moments.all.difference_squared, all.difference_squared);
      EXPECT_EQ(moments.all.product, all.product);
      EXPECT_EQ(moments.all.max_index, all.max_index);
      EXPECT_EQ(moments.all.different, all.different);
    };
    const auto expect_equal_slices =
        [&](const Slices& slices, const std::vector<float>& left, const std::vector<float>& right) {
          const Slices alone =
              sum_slices(shape, ElementType::kF32, left.data(), ElementType::kF32, right.data());
          ASSERT_EQ(slices.slicings, alone.slicings);
          EXPECT_EQ(slices.all.along_reference, alone.all.along_reference);
          ASSERT_EQ(slices.sums.size(), alone.sums.size());
          for (std::size_t i = 0; i < alone.sums.size(); ++i) {
            EXPECT_EQ(slices.sums[i].difference_squared, alone.sums[i].difference_squared) << i;
            EXPECT_EQ(slices.sums[i].count, alone.sums[i].count) << i;
          }
        };
    expect_equal(found[0], r, a);
    expect_equal(found[1], r, b);
    expect_equal(found[2], a, b);
    expect_equal_slices(found[0].slices, r, a);
    expect_equal_slices(found[2].slices, a, b);
  }
}

}  // namespace
}  // namespace ttrace
