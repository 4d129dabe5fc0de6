// A product is known by its projections, and what is left of a wrong one has its size.
#include "trace/sums/projection.h"

#include "support/tensor_bytes.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

namespace ttrace::testing {
namespace {

constexpr std::int64_t kTokens = 150;  // no multiple of the number of projections
constexpr std::int64_t kInputs = 70;
constexpr std::int64_t kOutputs = 90;

using Doubles = std::vector<double>;

MatrixBytes matrix(const Doubles& values, std::int64_t columns) {
  return {ElementType::kF64,
          reinterpret_cast<const std::byte*>(values.data()),
          static_cast<std::int64_t>(values.size()) / columns,
          columns};
}

// x W^T, row-major.
Doubles times(const Doubles& x, const Doubles& w, std::int64_t inner) {
  const std::int64_t rows = static_cast<std::int64_t>(x.size()) / inner;
  const std::int64_t columns = static_cast<std::int64_t>(w.size()) / inner;
  Doubles y(static_cast<std::size_t>(rows * columns));
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < columns; ++j) {
      for (std::int64_t k = 0; k < inner; ++k) {
        y[static_cast<std::size_t>(i * columns + j)] +=
            x[static_cast<std::size_t>(i * inner + k)] * w[static_cast<std::size_t>(j * inner + k)];
      }
    }
  }
  return y;
}

// Rows become columns.
Doubles transposed(const Doubles& x, std::int64_t columns) {
  const std::int64_t rows = static_cast<std::int64_t>(x.size()) / columns;
  Doubles result(x.size());
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < columns; ++j) {
      result[static_cast<std::size_t>(j * rows + i)] = x[static_cast<std::size_t>(i * columns + j)];
    }
  }
  return result;
}

class ProjectionsTest : public ::testing::Test {
 protected:
  static double rest(const Matrix& core, Matrix expected) {
    add(core, -1.0, expected);
    return std::sqrt(squared_norm(expected));
  }

  const Doubles x_ = normal_values(kTokens * kInputs, 1);
  const Doubles w_ = normal_values(kOutputs * kInputs, 2);
  const Doubles gy_ = normal_values(kTokens * kOutputs, 3);
};

TEST_F(ProjectionsTest, OfAProductAreTheProductOfProjections) {
  const Doubles y = times(x_, w_, kInputs);
  const Matrix core = projections_of(matrix(y, kOutputs)).core;
  const Matrix expected = product_of_columns(projections_of(matrix(x_, kInputs)).left,
                                             projections_of(matrix(w_, kInputs)).left);
  EXPECT_LT(rest(core, expected), 1e-10 * std::sqrt(squared_norm(core)));
}

TEST_F(ProjectionsTest, OfAGradientAreTheProductOfProjections) {
  const Doubles gx = times(gy_, transposed(w_, kInputs), kOutputs);
  const Matrix left = projections_of(matrix(gy_, kOutputs)).left;
  const Matrix right = projections_of(matrix(w_, kInputs)).right;
  const Matrix of_input = projections_of(matrix(gx, kInputs)).core;
  EXPECT_LT(rest(of_input, product(left, right)), 1e-10 * std::sqrt(squared_norm(of_input)));
  const Doubles gw = times(transposed(gy_, kOutputs), transposed(x_, kInputs), kTokens);
  const Matrix of_weight = projections_of(matrix(gw, kInputs)).core;
  EXPECT_LT(rest(of_weight,
                 product_of_rows(projections_of(matrix(gy_, kOutputs)).right,
                                 projections_of(matrix(x_, kInputs)).right)),
            1e-10 * std::sqrt(squared_norm(of_weight)));
}

TEST_F(ProjectionsTest, OfAnErrorHaveItsSize) {
  double sum = 0.0;
  for (unsigned seed = 10; seed < 30; ++seed) {
    const Doubles error = normal_values(kTokens * kOutputs, seed, 1e-3);
    const double size = std::sqrt(squared_norm(projections_of(matrix(error, kOutputs)).core));
    EXPECT_NEAR(size / (1e-3 * std::sqrt(kTokens * kOutputs)), 1.0, 0.15);
    sum += size * size;
  }
  EXPECT_NEAR(sum / 20 / (1e-6 * kTokens * kOutputs), 1.0, 0.05);
}

// The error of a sum that one rank missed has as many ranks as its inner dimension, one that all
// tokens share has one.
TEST_F(ProjectionsTest, OfAnErrorOfOneRankHaveItsSize) {
  const Doubles rows = normal_values(kTokens, 4);
  const Doubles columns = normal_values(kOutputs, 5);
  const Doubles error = times(rows, columns, 1);
  const Projections projections = projections_of(matrix(error, kOutputs));
  EXPECT_NEAR(std::sqrt(squared_norm(projections.core) / projections.squares), 1.0, 0.5);
}

TEST_F(ProjectionsTest, OfABiasAreThoseOfOnesAndOfIt) {
  const Doubles bias = normal_values(kOutputs, 6);
  Doubles y;
  for (std::int64_t row = 0; row < kTokens; ++row) {
    y.insert(y.end(), bias.begin(), bias.end());
  }
  const Doubles ones = projected_ones(kTokens);
  const Doubles columns = projected(bias);
  Matrix expected = zeros(kProjections, kProjections);
  for (std::int64_t i = 0; i < kProjections; ++i) {
    for (std::int64_t j = 0; j < kProjections; ++j) {
      expected.row(i)[j] = ones[static_cast<std::size_t>(i)] * columns[static_cast<std::size_t>(j)];
    }
  }
  EXPECT_LT(rest(projections_of(matrix(y, kOutputs)).core, expected), 1e-10);
}

}  // namespace
}  // namespace ttrace::testing
