#include "trace/sums/projection.h"

#include "trace/base/random.h"

#include <algorithm>
#include <functional>
#include <numeric>

namespace ttrace {
namespace {

// The signs of indices 0 ... count - 1.
std::vector<double> signs_of(std::int64_t count) {
  std::vector<double> signs(static_cast<std::size_t>(count));
  const std::uint64_t key = scramble(static_cast<std::uint64_t>(count));
  for (std::size_t i = 0; i < signs.size(); ++i) {
    signs[i] = (random_bits(key, i) & 1U) != 0 ? -1.0 : 1.0;
  }
  return signs;
}

// target[j mod k] += sign_j x_j.
void fold(const double* values, const std::vector<double>& signs, double* target) {
  const auto count = static_cast<std::int64_t>(signs.size());
  for (std::int64_t start = 0; start < count; start += kProjections) {
    const std::int64_t length = std::min(kProjections, count - start);
    for (std::int64_t i = 0; i < length; ++i) {
      target[i] += signs[static_cast<std::size_t>(start + i)] * values[start + i];
    }
  }
}

}  // namespace

Matrix zeros(std::int64_t rows, std::int64_t columns) {
  return {rows, columns, std::vector<double>(static_cast<std::size_t>(rows * columns))};
}

Projections projections_of(const MatrixBytes& matrix) {
  Projections result{zeros(kProjections, matrix.columns),
                     zeros(matrix.rows, kProjections),
                     zeros(kProjections, kProjections)};
  const std::vector<double> row_signs = signs_of(matrix.rows);
  const std::vector<double> column_signs = signs_of(matrix.columns);
  std::vector<double> values(static_cast<std::size_t>(matrix.columns));
  const std::size_t size = values.size() * element_size(matrix.type);
  for (std::int64_t row = 0; row < matrix.rows; ++row) {
    to_double(matrix.type,
              matrix.bytes + static_cast<std::size_t>(row) * size,
              matrix.columns,
              values.data());
    const double sign = row_signs[static_cast<std::size_t>(row)];
    double* const left = result.left.row(row % kProjections);
    for (std::size_t i = 0; i < values.size(); ++i) {
      left[i] += sign * values[i];
    }
    fold(values.data(), column_signs, result.right.row(row));
    result.squares =
        std::inner_product(values.begin(), values.end(), values.begin(), result.squares);
  }
  for (std::int64_t row = 0; row < kProjections; ++row) {
    fold(result.left.row(row), column_signs, result.core.row(row));
  }
  return result;
}

std::vector<double> projected_ones(std::int64_t count) {
  return projected(std::vector<double>(static_cast<std::size_t>(count), 1.0));
}

std::vector<double> projected(std::span<const double> values) {
  std::vector<double> result(static_cast<std::size_t>(kProjections));
  fold(values.data(), signs_of(static_cast<std::int64_t>(values.size())), result.data());
  return result;
}

Matrix product_of_columns(const Matrix& left, const Matrix& right) {
  Matrix result = zeros(left.rows, right.rows);
  for (std::int64_t i = 0; i < left.rows; ++i) {
    for (std::int64_t j = 0; j < right.rows; ++j) {
      result.row(i)[j] =
          std::inner_product(left.row(i), left.row(i) + left.columns, right.row(j), 0.0);
    }
  }
  return result;
}

Matrix product(const Matrix& left, const Matrix& right) {
  Matrix result = zeros(left.rows, right.columns);
  for (std::int64_t i = 0; i < left.rows; ++i) {
    for (std::int64_t n = 0; n < left.columns; ++n) {
      const double factor = left.row(i)[n];
      for (std::int64_t j = 0; j < right.columns; ++j) {
        result.row(i)[j] += factor * right.row(n)[j];
      }
    }
  }
  return result;
}

Matrix product_of_rows(const Matrix& left, const Matrix& right) {
  Matrix result = zeros(left.columns, right.columns);
  for (std::int64_t row = 0; row < left.rows; ++row) {
    for (std::int64_t i = 0; i < left.columns; ++i) {
      const double factor = left.row(row)[i];
      double* const target = result.row(i);
      for (std::int64_t j = 0; j < right.columns; ++j) {
        target[j] += factor * right.row(row)[j];
      }
    }
  }
  return result;
}

void add(const Matrix& from, double scale, Matrix& to) {
  std::transform(from.values.begin(),
                 from.values.end(),
                 to.values.begin(),
                 to.values.begin(),
                 [scale](double value, double sum) { return sum + scale * value; });
}

double squared_norm(const Matrix& matrix) {
  return std::inner_product(matrix.values.begin(), matrix.values.end(), matrix.values.begin(), 0.0);
}

}  // namespace ttrace
