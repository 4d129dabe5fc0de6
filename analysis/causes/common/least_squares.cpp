#include "analysis/causes/common/least_squares.h"

#include <cmath>
#include <cstddef>
#include <numeric>

namespace ttrace {
namespace {

double dot(std::span<const double> left, std::span<const double> right) {
  return std::inner_product(left.begin(), left.end(), right.begin(), 0.0);
}

// The lower triangle L of the normal matrix X'X = L L', row by row.
class Cholesky {
 public:
  explicit Cholesky(std::span<const std::vector<double>> columns)
      : n_(columns.size()), lower_(n_ * n_) {
    // A column is a combination of those before it where its pivot has lost all but so much.
    constexpr double kDependent = 1e-8;
    for (std::size_t i = 0; i < n_; ++i) {
      for (std::size_t j = 0; j <= i; ++j) {
        const double product = dot(columns[i], columns[j]);
        const double left = product - dot(row(i).first(j), row(j).first(j));
        const bool pivots = left > kDependent * product && std::isfinite(left);
        is_regular_ = is_regular_ && (i != j || pivots);
        lower_[i * n_ + j] = i == j ? std::sqrt(left) : left / lower_[j * n_ + j];
      }
    }
  }
  [[nodiscard]] bool is_regular() const { return is_regular_; }

  // L^-1 b
  [[nodiscard]] std::vector<double> forward(std::vector<double> b) const {
    for (std::size_t i = 0; i < n_; ++i) {
      b[i] = (b[i] - dot(row(i).first(i), std::span(b).first(i))) / row(i)[i];
    }
    return b;
  }
  // L'^-1 b
  [[nodiscard]] std::vector<double> backward(std::vector<double> b) const {
    for (std::size_t i = n_; i-- > 0;) {
      b[i] /= row(i)[i];
      for (std::size_t j = 0; j < i; ++j) {
        b[j] -= row(i)[j] * b[i];
      }
    }
    return b;
  }

 private:
  [[nodiscard]] std::span<const double> row(std::size_t i) const {
    return std::span(lower_).subspan(i * n_, n_);
  }

  std::size_t n_;
  std::vector<double> lower_;
  bool is_regular_ = true;
};

}  // namespace

std::optional<Fit> fit(std::span<const std::vector<double>> columns,
                       std::span<const double> target) {
  const std::size_t n = columns.size();
  if (n == 0 || target.size() < 2 * n) {
    return std::nullopt;
  }
  const Cholesky factor(columns);
  if (!factor.is_regular()) {
    return std::nullopt;
  }
  std::vector<double> right;
  for (const std::vector<double>& column : columns) {
    right.push_back(dot(column, target));
  }
  Fit found{.coefficients = factor.backward(factor.forward(std::move(right))), .deviations = {}};
  std::vector<double> rest(target.begin(), target.end());
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t at = 0; at < rest.size(); ++at) {
      rest[at] -= found.coefficients[i] * columns[i][at];
    }
  }
  found.residual = std::sqrt(dot(rest, rest));
  const double deviation = found.residual / std::sqrt(static_cast<double>(target.size() - n));
  for (std::size_t i = 0; i < n; ++i) {
    std::vector<double> unit(n);
    unit[i] = 1.0;
    const std::vector<double> row = factor.forward(std::move(unit));
    found.deviations.push_back(deviation * std::sqrt(dot(row, row)));  // of (X'X)^-1
  }
  return found;
}

}  // namespace ttrace
