#include "analysis/causes/common/least_squares.h"

#include <Eigen/Cholesky>
#include <cmath>
#include <cstddef>

namespace ttrace {
namespace {

using Vector = Eigen::VectorXd;
using Column = Eigen::Map<const Vector>;

Column view_of(std::span<const double> values) {
  return {values.data(), std::ssize(values)};
}

// Whether a column is a combination of those before it: its pivot has lost all but 1e-8 of its
// square.
bool is_dependent(const Eigen::MatrixXd& gram, const Eigen::LLT<Eigen::MatrixXd>& factor) {
  constexpr double kDependent = 1e-8;
  const Vector pivots = factor.matrixLLT().diagonal().array().square();
  return factor.info() != Eigen::Success || !pivots.allFinite() ||
         (pivots.array() <= kDependent * gram.diagonal().array()).any();
}

}  // namespace

std::optional<Fit> fit(std::span<const std::vector<double>> columns,
                       std::span<const double> target) {
  const auto n = std::ssize(columns);
  if (n == 0 || std::ssize(target) < 2 * n) {
    return std::nullopt;
  }
  Eigen::MatrixXd gram(n, n);
  Vector right(n);
  for (std::ptrdiff_t i = 0; i < n; ++i) {
    const Column column = view_of(columns[static_cast<std::size_t>(i)]);
    right[i] = column.dot(view_of(target));
    for (std::ptrdiff_t j = 0; j <= i; ++j) {
      gram(i, j) = gram(j, i) = column.dot(view_of(columns[static_cast<std::size_t>(j)]));
    }
  }
  const Eigen::LLT<Eigen::MatrixXd> factor(gram);
  if (is_dependent(gram, factor)) {
    return std::nullopt;
  }
  const Vector solution = factor.solve(right);
  Vector rest = view_of(target);
  for (std::ptrdiff_t i = 0; i < n; ++i) {
    rest -= solution[i] * view_of(columns[static_cast<std::size_t>(i)]);
  }
  const double variance = rest.squaredNorm() / static_cast<double>(std::ssize(target) - n);
  const Vector deviations =
      (variance * factor.solve(Eigen::MatrixXd::Identity(n, n)).diagonal()).array().sqrt();
  return Fit{.coefficients = {solution.begin(), solution.end()},
             .deviations = {deviations.begin(), deviations.end()},
             .residual = rest.norm()};
}

}  // namespace ttrace
