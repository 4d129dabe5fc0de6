#include "analysis/causes/common/least_squares.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>

namespace ttrace {
namespace {

// Lower triangle of the Cholesky factor, row-major n x n; nothing where a pivot has lost all but
// 1e-8 of its diagonal: the column is then a combination of those before it.
std::optional<std::vector<double>> cholesky(std::vector<double> gram, std::size_t n) {
  constexpr double kDependent = 1e-8;
  for (std::size_t row = 0; row < n; ++row) {
    for (std::size_t column = 0; column <= row; ++column) {
      double sum = gram[row * n + column];
      for (std::size_t k = 0; k < column; ++k) {
        sum -= gram[row * n + k] * gram[column * n + k];
      }
      if (row != column) {
        gram[row * n + column] = sum / gram[column * n + column];
      } else if (sum <= kDependent * gram[row * n + row] || !std::isfinite(sum)) {
        return std::nullopt;
      } else {
        gram[row * n + row] = std::sqrt(sum);
      }
    }
  }
  return gram;
}

std::vector<double> solve(const std::vector<double>& factor, std::vector<double> x, std::size_t n) {
  for (std::size_t row = 0; row < n; ++row) {
    for (std::size_t k = 0; k < row; ++k) {
      x[row] -= factor[row * n + k] * x[k];
    }
    x[row] /= factor[row * n + row];
  }
  for (std::size_t row = n; row-- > 0;) {
    for (std::size_t k = row + 1; k < n; ++k) {
      x[row] -= factor[k * n + row] * x[k];
    }
    x[row] /= factor[row * n + row];
  }
  return x;
}

double dot(std::span<const double> left, std::span<const double> right) {
  return std::inner_product(left.begin(), left.end(), right.begin(), 0.0);
}

}  // namespace

std::optional<Fit> fit(std::span<const std::vector<double>> columns,
                       std::span<const double> target) {
  const std::size_t n = columns.size();
  if (n == 0 || target.size() < 2 * n) {
    return std::nullopt;
  }
  std::vector<double> gram(n * n);
  std::vector<double> right(n);
  for (std::size_t i = 0; i < n; ++i) {
    right[i] = dot(columns[i], target);
    for (std::size_t j = 0; j <= i; ++j) {
      gram[i * n + j] = gram[j * n + i] = dot(columns[i], columns[j]);
    }
  }
  const auto factor = cholesky(std::move(gram), n);
  if (!factor) {
    return std::nullopt;
  }
  Fit result{.coefficients = solve(*factor, right, n), .deviations = {}, .residual = 0.0};
  double squared = 0.0;
  for (std::size_t row = 0; row < target.size(); ++row) {
    double rest = target[row];
    for (std::size_t i = 0; i < n; ++i) {
      rest -= result.coefficients[i] * columns[i][row];
    }
    squared += rest * rest;
  }
  result.residual = std::sqrt(squared);
  const double variance = squared / static_cast<double>(target.size() - n);
  for (std::size_t i = 0; i < n; ++i) {
    std::vector<double> unit(n);
    unit[i] = 1.0;
    result.deviations.push_back(std::sqrt(variance * solve(*factor, unit, n)[i]));
  }
  return result;
}

}  // namespace ttrace
