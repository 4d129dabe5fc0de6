#include "analysis/bounds/error_freedom.h"

#include "trace/sums/squared.h"

#include <boost/math/distributions/chi_squared.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>

namespace ttrace {
namespace {

// The variance that a normal variable of this sample variance has at most, but for one case in
// forty.
double upper_variance(double sample, std::int64_t count) {
  constexpr double kByChance = 0.025;
  const auto freedom = static_cast<double>(count - 1);
  return sample * freedom / boost::math::quantile(boost::math::chi_squared(freedom), kByChance);
}

// nu of the slices of one dimension.
double freedom_of(std::span<const SliceSums> found, std::span<const double> scales) {
  std::int64_t count = 0;
  double sum = 0.0;
  double squares = 0.0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const double error = found[i].difference_squared;
    // What both rounded alike, bit by bit, tells nothing of chance.
    if (error > 0.0 && scales[i] > 0.0 && error != scales[i]) {
      const double logarithm = std::log(error / scales[i]);
      ++count;
      sum += logarithm;
      squares += squared(logarithm);
    }
  }
  if (count < 2) {
    return 0.0;
  }
  const double sample = std::max(0.0, squares - sum * sum / static_cast<double>(count)) /
                        static_cast<double>(count - 1);
  const double variance = upper_variance(sample, count);
  // The root of var nu^2 - 4 nu - 4 = 0.
  return variance > 0.0 ? 2.0 * (1.0 + std::sqrt(1.0 + variance)) / variance
                        : std::numeric_limits<double>::infinity();
}

// (sum s^2)^2 / sum s^4
double equal_parts(std::span<const double> scales) {
  double sum = 0.0;
  double squares = 0.0;
  for (const double scale : scales) {
    sum += scale;
    squares += squared(scale);
  }
  return squares > 0.0 ? squared(sum) / squares : 0.0;
}

}  // namespace

ErrorFreedom error_freedom(const Slices& found, std::span<const double> scales) {
  constexpr std::int64_t kFewSlices = 32;
  ErrorFreedom freedom;
  std::optional<double> whole;
  for (const Slicing& slicing : found.slicings) {
    const auto own = scales.subspan(slicing.first, static_cast<std::size_t>(slicing.count));
    freedom.of_slice.push_back(freedom_of(found.of(slicing), own));
    if (slicing.count >= kFewSlices) {
      const double shown = freedom.of_slice.back() * equal_parts(own);
      whole = std::min(shown, whole.value_or(shown));
    }
  }
  freedom.whole = whole.value_or(0.0);
  for (double& each : freedom.of_slice) {
    if (each > 0.0 && freedom.whole > 0.0) {
      each = 1.0 / (1.0 / each + 1.0 / freedom.whole);
    }
  }
  return freedom;
}

}  // namespace ttrace
