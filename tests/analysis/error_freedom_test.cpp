#include "analysis/bounds/error_freedom.h"

#include "analysis/bounds/spread.h"
#include "support/tensor_bytes.h"
#include "trace/sums/slices.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ttrace {
namespace {

constexpr std::int64_t kRows = 128;
constexpr std::int64_t kColumns = 96;
constexpr unsigned kNative = 1;  // seeds
constexpr unsigned kCandidate = 2;

// What two right runs of [128, 96] errors show; error(row, column, normal) is one of them, where
// `normal` holds one random number for each element.
template <typename Error>
ErrorFreedom freedom_of(const Error& error) {
  const std::vector<double> zero(static_cast<std::size_t>(kRows * kColumns));
  const std::vector<std::int64_t> shape = {kRows, kColumns};
  const auto slices = [&](unsigned seed) {
    const std::vector<double> normal = testing::normal_values(kRows * kColumns, seed);
    std::vector<double> errors;
    for (std::int64_t row = 0; row < kRows; ++row) {
      for (std::int64_t column = 0; column < kColumns; ++column) {
        errors.push_back(error(row, column, normal));
      }
    }
    return sum_slices(shape, ElementType::kF64, zero.data(), ElementType::kF64, errors.data());
  };
  std::vector<double> scales;
  for (const SliceSums& slice : slices(kNative).sums) {
    scales.push_back(slice.difference_squared);
  }
  return error_freedom(slices(kCandidate), scales);
}

double at(std::int64_t row, std::int64_t column, const std::vector<double>& values) {
  return values[static_cast<std::size_t>(row * kColumns + column)];
}

TEST(ErrorFreedom, IsTheNumberOfElementsThatErrIndependently) {
  const ErrorFreedom found = freedom_of(at);
  ASSERT_EQ(found.of_slice.size(), 2U);
  // The upper confidence bound of a variance takes a fifth to a half off.
  EXPECT_GT(found.of_slice[0], 0.5 * kColumns);
  EXPECT_LT(found.of_slice[0], 1.2 * kColumns);
  EXPECT_GT(found.of_slice[1], 0.5 * kRows);
  EXPECT_LT(found.of_slice[1], 1.2 * kRows);
  EXPECT_GT(found.whole, 0.5 * kRows * kColumns);
}

// A few tokens err a thousand times as much as others.
TEST(ErrorFreedom, DoesNotDependOnHowMuchSlicesDiffer) {
  const ErrorFreedom found =
      freedom_of([](std::int64_t row, std::int64_t column, const std::vector<double>& normal) {
        return (row % 16 == 0 ? 1000.0 : 1.0) * at(row, column, normal);
      });
  EXPECT_GT(found.of_slice[0], 0.5 * kColumns);
  EXPECT_LT(found.of_slice[1], 0.1 * kRows) << "what counts in a column are these tokens";
}

TEST(ErrorFreedom, OfTokensWhoseElementsErrAlikeIsSmall) {
  const ErrorFreedom found =
      freedom_of([](std::int64_t row, std::int64_t column, const std::vector<double>& normal) {
        return at(row, column % 4, normal);
      });
  EXPECT_GT(found.of_slice[0], 2.0);
  EXPECT_LT(found.of_slice[0], 5.0);
}

// Every row is the same, so that rows alone say that nothing was left to chance.
TEST(ErrorFreedom, OfARowIsNoMoreThanThatOfTheWhole) {
  const ErrorFreedom found =
      freedom_of([](std::int64_t, std::int64_t column, const std::vector<double>& normal) {
        return at(0, column, normal);
      });
  EXPECT_LT(found.of_slice[0], 1.2 * kColumns);
  EXPECT_LT(found.whole, 1.2 * kColumns);
}

// One row of 128 is thirty times too far off.
TEST(ErrorFreedom, OneWrongSliceLeavesALimitThatFindsIt) {
  const double candidate = testing::normal_values(kRows * kColumns, kCandidate).front();
  const ErrorFreedom found =
      freedom_of([&](std::int64_t row, std::int64_t column, const std::vector<double>& normal) {
        return (row == 7 && normal.front() == candidate ? 30.0 : 1.0) * at(row, column, normal);
      });
  EXPECT_LT(ratio_limit(1.5, found.of_slice[0], 2.0 * found.of_slice[0], 1e-9).value, 15.0);
}

// Both runs round all rows but a few with the same kernel.
TEST(ErrorFreedom, OfSlicesThatAreEqualInBothRunsIsNotCounted) {
  const std::vector<double> alike = testing::normal_values(kRows * kColumns, 3);
  const ErrorFreedom found =
      freedom_of([&](std::int64_t row, std::int64_t column, const std::vector<double>& normal) {
        return at(row, column % 4, row % 8 == 0 ? normal : alike);
      });
  EXPECT_LT(found.of_slice[0], 6.0) << "four errors in a row";
}

TEST(ErrorFreedom, OfEqualTensorsIsNotKnown) {
  const ErrorFreedom found =
      freedom_of([](std::int64_t, std::int64_t, const std::vector<double>&) { return 0.0; });
  EXPECT_EQ(found.of_slice[0], 0.0);
  EXPECT_EQ(found.whole, 0.0);
}

}  // namespace
}  // namespace ttrace
