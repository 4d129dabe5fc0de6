// How many errors a part of one tensor averages, told by the tensor alone: from what its operators
// rounded twice, in the native pass and in the candidate.
//
// Let x_i be slice i's squared error in the candidate and s_i^2 the scale that the native pass
// shows of it. If both are chi-squared variables of nu degrees of freedom, times a variance,
//
//   var log(x_i / s_i^2) = 2 trigamma(nu / 2), about 4 / nu + 4 / nu^2
//
// whatever the variances are, and whatever all slices have in common. We take the variance's upper
// confidence bound, so that few slices tell little, and one that is wrong raises the limit by far
// less than its own error. Noise passes tell nu, too, and tell too few: what a pass moved upstream
// reaches all elements of a token, while the operators' own roundings are independent of one
// another.
//
// What all slices of a dimension have in common is seen in another dimension, so that the whole
// tensor has the fewest degrees of freedom that any dimension of enough slices shows, and a slice
// no more than these:
//
//   nu_whole = min over dimensions of nu (sum_i s_i^2)^2 / sum_i s_i^4
//   1 / nu_i = 1 / nu + 1 / nu_whole
//
// Source: the moments of the logarithm of a gamma variable, Abramowitz and Stegun 6.4.
//
// Thread-safety: plain values and a free function.
#pragma once

#include "trace/sums/slices.h"

#include <span>
#include <vector>

namespace ttrace {

struct ErrorFreedom {
  std::vector<double> of_slice = {};  // by slicing; 0: not known
  double whole = 0.0;                 // 0: not known
};

// `scales`: s_i^2 of each of `found`, up to a factor that all have in common; one for each of
// found.sums.
[[nodiscard]] ErrorFreedom error_freedom(const Slices& found, std::span<const double> scales);

}  // namespace ttrace
