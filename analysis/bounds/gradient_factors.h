// What a reference multiplies the sum of a parameter's gradients by to make its main gradient: one
// over the step's tokens or micro-batches, where a program divides there and not at the loss.
//
// Thread-safety: a free function without shared state.
#pragma once

#include "analysis/align/matching.h"

#include <cmath>
#include <cstdint>
#include <map>
#include <span>

namespace ttrace {

// a of main_grad = a x the sum over micro-batches of param_grad, by step. Programs have one number
// for all parameters, so the smallest one that tells is read. A step is left out where no elements
// were kept, or where more than 1 % of ||main_grad||^2 is no multiple of the sum.
using GradientFactors = std::map<std::int64_t, double>;
[[nodiscard]] GradientFactors gradient_factors(std::span<const Match> matches);

// 1 for a factor that rounding may have made of it.
[[nodiscard]] inline double without_rounding(double factor) {
  constexpr double kOneFactor = 1e-3;  // relative; rounding takes a factor no farther
  return std::abs(factor - 1.0) < kOneFactor ? 1.0 : factor;
}

}  // namespace ttrace
