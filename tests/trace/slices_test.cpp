#include "trace/sums/slices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

namespace ttrace {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

using Shape = std::vector<std::int64_t>;

std::vector<double> wave(std::size_t count, double phase) {
  std::vector<double> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = std::sin(1.7 * static_cast<double>(i) + phase);
  }
  return values;
}

Slices sum(const Shape& shape, const std::vector<double>& r, const std::vector<double>& c) {
  return sum_slices(shape, ElementType::kF64, r.data(), ElementType::kF64, c.data());
}

// Element by element, by the index in one dimension; `dim` may be kRows.
std::vector<SliceSums> by_hand(const Shape& shape,
                               std::size_t dim,
                               const std::vector<double>& r,
                               const std::vector<double>& c) {
  const bool rows = dim == Slicing::kRows;
  std::int64_t inner = 1;
  for (std::size_t i = rows ? shape.size() - 1 : dim + 1; i < shape.size(); ++i) {
    inner *= shape[i];
  }
  const auto all = static_cast<std::int64_t>(r.size());
  const std::int64_t count = rows ? all / shape.back() : shape[dim];
  std::vector<SliceSums> sums(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < all; ++i) {
    const auto at = static_cast<std::size_t>(i);
    const double d = c[at] - r[at];
    sums[static_cast<std::size_t>(i / inner % count)].add({1, r[at] * r[at], d * d, r[at] * d, d});
  }
  return sums;
}

void expect_near(const SliceSums& sums, const SliceSums& expected) {
  EXPECT_EQ(sums.count, expected.count);
  EXPECT_NEAR(sums.reference_squared, expected.reference_squared, 1e-9);
  EXPECT_NEAR(sums.difference_squared, expected.difference_squared, 1e-9);
  EXPECT_NEAR(sums.along_reference, expected.along_reference, 1e-9);
  EXPECT_NEAR(sums.difference, expected.difference, 1e-9);
}

TEST(Slices, EveryIndexOfEveryDimensionAndEveryRowIsSummed) {
  const Shape shape{5, 3, 700};  // rows longer than what is converted at once
  const std::vector<double> r = wave(5 * 3 * 700, 0.0);
  const std::vector<double> c = wave(5 * 3 * 700, 0.1);
  const Slices slices = sum(shape, r, c);
  ASSERT_THAT(slices.slicings,
              ElementsAre(Slicing{0, 5, 0},
                          Slicing{1, 3, 5},
                          Slicing{2, 700, 8},
                          Slicing{Slicing::kRows, 15, 708}));
  for (const Slicing& slicing : slices.slicings) {
    const std::vector<SliceSums> expected = by_hand(shape, slicing.dim, r, c);
    ASSERT_EQ(slices.of(slicing).size(), expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i) {
      SCOPED_TRACE(i);
      expect_near(slices.of(slicing)[i], expected[i]);
    }
  }
  SliceSums all;
  for (const SliceSums& rows : slices.of(slices.slicings[0])) {
    all.add(rows);
  }
  expect_near(slices.all, all);
}

TEST(Slices, WithoutDetailDifferencesAreTheSameBits) {
  const Shape shape = {3, 5, 11};
  const std::vector<double> r = wave(165, 0.0);
  std::vector<double> c = wave(165, 0.01);
  c[17] = std::nan("");
  const Slices all = sum(shape, r, c);
  const Slices few = sum_slices(
      shape, ElementType::kF64, r.data(), ElementType::kF64, c.data(), SliceDetail::kDifferences);
  ASSERT_EQ(few.sums.size(), all.sums.size());
  for (std::size_t i = 0; i < all.sums.size(); ++i) {
    EXPECT_EQ(few.sums[i].difference_squared, all.sums[i].difference_squared) << i;
    EXPECT_EQ(few.sums[i].count, all.sums[i].count) << i;
  }
  EXPECT_EQ(few.all.along_reference, all.all.along_reference);
}

TEST(Slices, AMatrixHasNoRowsBesideItsFirstDimension) {
  EXPECT_THAT(slicings_of(Shape{4, 6}), ElementsAre(Slicing{0, 4, 0}, Slicing{1, 6, 4}));
  EXPECT_THAT(slicings_of(Shape{4, 1, 6}), ElementsAre(Slicing{0, 4, 0}, Slicing{2, 6, 4}));
}

// A cause may lie in a slice that no noise is stored of: elements of a vector, one of very many
// indices, rows of a matrix.
TEST(Slices, OfAllChoiceLeavesOutNothingButDimensionsOfOneIndex) {
  const auto all_of = [](const Shape& shape) { return slicings_of(shape, SliceChoice::kAll); };
  EXPECT_THAT(all_of(Shape{128}), ElementsAre(Slicing{0, 128, 0}));
  EXPECT_THAT(all_of(Shape{4, 6}),
              ElementsAre(Slicing{0, 4, 0}, Slicing{1, 6, 4}, Slicing{Slicing::kRows, 4, 10}));
  EXPECT_THAT(all_of(Shape{4, 6, 1}),
              ElementsAre(Slicing{0, 4, 0}, Slicing{1, 6, 4}, Slicing{Slicing::kRows, 24, 10}));
  EXPECT_THAT(all_of(Shape{2, kMostSlices + 1}),
              ElementsAre(Slicing{0, 2, 0},
                          Slicing{1, kMostSlices + 1, 2},
                          Slicing{Slicing::kRows, 2, static_cast<std::size_t>(kMostSlices) + 3}));
  EXPECT_THAT(all_of(Shape{}), IsEmpty());
  EXPECT_THAT(all_of(Shape{0, 4}), IsEmpty());
}

TEST(Slices, AllSlicesOfAnyShapeAreSummedAndLieWhereTheirViewsSay) {
  for (const Shape& shape : {Shape{24}, {4, 6}, {4, 6, 1}, {2, 1, 12}, {2, 3, 4}, {1, 1}}) {
    const auto count = static_cast<std::size_t>(
        std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>()));
    const std::vector<double> r = wave(count, 0.0);
    const std::vector<double> c = wave(count, 0.1);
    const Slices slices = sum_slices(shape,
                                     ElementType::kF64,
                                     r.data(),
                                     ElementType::kF64,
                                     c.data(),
                                     SliceDetail::kAll,
                                     SliceChoice::kAll);
    for (const Slicing& slicing : slices.slicings) {
      SCOPED_TRACE(slicing.dim);
      const std::vector<SliceSums> expected = by_hand(shape, slicing.dim, r, c);
      const SliceView view = view_of(shape, slicing);
      std::vector<SliceSums> viewed(expected.size());
      for (std::size_t i = 0; i < count; ++i) {
        viewed.at(static_cast<std::size_t>(view.slice_of(i))).count += 1;
      }
      ASSERT_EQ(slices.of(slicing).size(), expected.size());
      for (std::size_t i = 0; i < expected.size(); ++i) {
        expect_near(slices.of(slicing)[i], expected[i]);
        EXPECT_EQ(viewed[i].count, expected[i].count);
      }
    }
  }
}

TEST(Slices, DimensionsOfOneIndexChangeNothing) {
  const std::vector<double> r = wave(24, 0.0);
  const std::vector<double> c = wave(24, 0.1);
  const Slices plain = sum({4, 6}, r, c);
  const Slices padded = sum({1, 4, 1, 6, 1}, r, c);
  ASSERT_EQ(padded.sums.size(), plain.sums.size());
  for (std::size_t i = 0; i < plain.sums.size(); ++i) {
    expect_near(padded.sums[i], plain.sums[i]);
  }
}

TEST(Slices, VectorsScalarsAndEmptyTensorsHaveNone) {
  EXPECT_THAT(slicings_of(Shape{}), IsEmpty());
  EXPECT_THAT(slicings_of(Shape{128}), IsEmpty());
  EXPECT_THAT(slicings_of(Shape{1, 128}), IsEmpty());
  EXPECT_THAT(slicings_of(Shape{0, 4, 4}), IsEmpty());
  const std::vector<double> r{1.0, 2.0, -3.0};
  const std::vector<double> c{1.5, 2.0, -4.0};
  expect_near(sum({3}, r, c).all, {3, 14.0, 1.25, 3.5, -0.5});
  expect_near(sum({}, r, c).all, {1, 1.0, 0.25, 0.5, 0.5});
}

TEST(Slices, ADimensionOfTooManyIndicesIsLeftOut) {
  const Shape shape{2, kMostSlices + 1};
  EXPECT_THAT(slicings_of(shape), ElementsAre(Slicing{0, 2, 0}));
  const std::vector<double> r(2 * static_cast<std::size_t>(kMostSlices + 1), 1.0);
  const std::vector<double> c(r.size(), 3.0);
  const auto n = static_cast<double>(kMostSlices + 1);
  expect_near(sum(shape, r, c).sums[1], {kMostSlices + 1, n, 4.0 * n, 2.0 * n, 2.0 * n});
  EXPECT_THAT(slicings_of(Shape{300, 300, 4}),
              ElementsAre(Slicing{0, 300, 0}, Slicing{1, 300, 300}, Slicing{2, 4, 600}))
      << "90000 rows are too many";
}

TEST(Slices, ElementsThatAreNotFiniteAreLeftOutOfEverySliceTheyAreIn) {
  std::vector<double> r = wave(12, 0.0);
  std::vector<double> c = wave(12, 0.1);
  r[1] = std::numeric_limits<double>::infinity();
  c[6] = std::numeric_limits<double>::quiet_NaN();
  const Slices slices = sum({3, 4}, r, c);
  r[1] = c[1] = r[6] = c[6] = 0.0;
  for (const Slicing& slicing : slices.slicings) {
    std::vector<SliceSums> expected = by_hand({3, 4}, slicing.dim, r, c);
    expected[slicing.dim == 0 ? 0 : 1].count -= 1;
    expected[slicing.dim == 0 ? 1 : 2].count -= 1;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      expect_near(slices.of(slicing)[i], expected[i]);
    }
  }
  EXPECT_EQ(slices.all.count, 10);
}

// <c, r> - <r, r> loses all digits where c is nearly r; the sum of r d keeps them.
TEST(Slices, AFactorNextToOneIsExact) {
  const std::vector<double> r = wave(4096, 0.0);
  std::vector<double> c = r;
  for (double& value : c) {
    value *= 1.0 + 0x1p-40;
  }
  const SliceSums all = sum({64, 64}, r, c).all;
  EXPECT_NEAR(all.along_reference / all.reference_squared, 0x1p-40, 0x1p-50);
}

TEST(Slices, StorageTypesAreWidened) {
  const std::vector<double> r{1.0, -2.0, 0.5, 4.0};
  const std::vector<double> c{1.5, -2.0, 0.25, 4.0};
  std::vector<std::byte> narrow_r(8);
  std::vector<std::byte> narrow_c(16);
  from_double(ElementType::kBF16, r.data(), 4, narrow_r.data());
  from_double(ElementType::kF32, c.data(), 4, narrow_c.data());
  const Shape shape{2, 2};
  const Slices slices =
      sum_slices(shape, ElementType::kBF16, narrow_r.data(), ElementType::kF32, narrow_c.data());
  const Slices wide = sum(shape, r, c);
  for (std::size_t i = 0; i < wide.sums.size(); ++i) {
    expect_near(slices.sums[i], wide.sums[i]);
  }
}

// Rows that end within a vector register, and within what is converted at once.
TEST(Slices, RowsOfAnyLengthAreSummedInEveryStorageType) {
  for (const ElementType type : {ElementType::kF64, ElementType::kF32, ElementType::kBF16}) {
    for (const std::int64_t length : {2, 7, 8, 9, 63, 511, 512, 513, 520, 1031}) {
      SCOPED_TRACE(std::string(name_of(type)) + ", rows of " + std::to_string(length));
      const Shape shape{3, length};
      const auto count = static_cast<std::size_t>(3 * length);
      const auto stored = [&](double phase) {
        std::vector<std::byte> bytes(count * element_size(type));
        from_double(type, wave(count, phase).data(), 3 * length, bytes.data());
        return bytes;
      };
      const auto widened = [&](const std::vector<std::byte>& bytes) {
        std::vector<double> values(count);
        to_double(type, bytes.data(), 3 * length, values.data());
        return values;
      };
      const std::vector<std::byte> r = stored(0.0);
      const std::vector<std::byte> c = stored(0.1);
      const Slices slices = sum_slices(shape, type, r.data(), type, c.data());
      for (const Slicing& slicing : slices.slicings) {
        const std::vector<SliceSums> expected = by_hand(shape, slicing.dim, widened(r), widened(c));
        ASSERT_EQ(slices.of(slicing).size(), expected.size());
        for (std::size_t i = 0; i < expected.size(); ++i) {
          expect_near(slices.of(slicing)[i], expected[i]);
        }
      }
    }
  }
}

}  // namespace
}  // namespace ttrace
