#include "analysis/causes/common/least_squares.h"

#include <cmath>
#include <cstddef>
#include <numeric>
#include <utility>

namespace ttrace {
namespace {

using Matrix = std::vector<std::vector<double>>;

double dot(std::span<const double> left, std::span<const double> right) {
  return std::inner_product(left.begin(), left.end(), right.begin(), 0.0);
}

// The inverse of a normal matrix, by elimination: it is positive, so that no rows need to change
// places. Nothing where a column is a combination of those before it, because then its pivot has
// lost all but 1e-8 of its square.
std::optional<Matrix> inverse(Matrix matrix) {
  constexpr double kDependent = 1e-8;
  const std::size_t n = matrix.size();
  std::vector<double> squares;
  for (std::size_t i = 0; i < n; ++i) {
    squares.push_back(matrix[i][i]);
  }
  for (std::size_t k = 0; k < n; ++k) {
    const double pivot = matrix[k][k];
    if (!(pivot > kDependent * squares[k]) || !std::isfinite(pivot)) {
      return std::nullopt;
    }
    matrix[k][k] = 1.0;
    for (double& number : matrix[k]) {
      number /= pivot;
    }
    for (std::size_t i = 0; i < n; ++i) {
      const double factor = i == k ? 0.0 : std::exchange(matrix[i][k], 0.0);
      for (std::size_t j = 0; j < n && i != k; ++j) {
        matrix[i][j] -= factor * matrix[k][j];
      }
    }
  }
  return matrix;
}

}  // namespace

std::optional<Fit> fit(std::span<const std::vector<double>> columns,
                       std::span<const double> target) {
  const std::size_t n = columns.size();
  if (n == 0 || target.size() < 2 * n) {
    return std::nullopt;
  }
  Matrix gram(n);
  std::vector<double> right;
  for (std::size_t i = 0; i < n; ++i) {
    right.push_back(dot(columns[i], target));
    for (const std::vector<double>& column : columns) {
      gram[i].push_back(dot(columns[i], column));
    }
  }
  const auto inverted = inverse(std::move(gram));
  if (!inverted) {
    return std::nullopt;
  }
  Fit found;
  std::vector<double> rest(target.begin(), target.end());
  for (std::size_t i = 0; i < n; ++i) {
    found.coefficients.push_back(dot((*inverted)[i], right));
    for (std::size_t at = 0; at < rest.size(); ++at) {
      rest[at] -= found.coefficients[i] * columns[i][at];
    }
  }
  const double squared = dot(rest, rest);
  found.residual = std::sqrt(squared);
  for (std::size_t i = 0; i < n; ++i) {
    found.deviations.push_back(
        std::sqrt(squared / static_cast<double>(target.size() - n) * (*inverted)[i][i]));
  }
  return found;
}

}  // namespace ttrace
