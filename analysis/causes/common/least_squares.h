// Least squares with a handful of unknowns, by normal equations in double.
//
// Thread-safety: free functions without shared state.
// Source: standard errors as in any text on linear regression, sd^2 = s^2 (X'X)^-1, s^2 the mean
// squared residual.
#pragma once

#include <optional>
#include <span>
#include <vector>

namespace ttrace {

struct Fit {
  std::vector<double> coefficients;
  std::vector<double> deviations;  // standard error of each coefficient
  double residual = 0.0;           // ||target - sum_i coefficient_i column_i||
};

// Columns and target of equal length. Nothing where there are fewer than two rows per unknown, or
// where the columns are (nearly) linearly dependent, so that coefficients mean nothing.
[[nodiscard]] std::optional<Fit> fit(std::span<const std::vector<double>> columns,
                                     std::span<const double> target);

}  // namespace ttrace
