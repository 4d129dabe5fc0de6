#include "analysis/bounds/spread.h"

#include "trace/sums/squared.h"

#include <boost/math/distributions/fisher_f.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <mutex>

namespace ttrace {
namespace {

constexpr double kUnknownFreedom = 15.0;
constexpr double kUnknownWeight = 5.0;  // in comparisons of one pass with the mean
constexpr double kMostFreedom = 1e6;    // more would not change a limit
constexpr double kEqual = 1e-12;

// Numbers are rounded down to a power of kStep, whose exponent is their step.
constexpr double kStep = 1.1;

int step_below(double value) {
  static const double of_step = std::log(kStep);
  return static_cast<int>(std::floor(std::log(value) / of_step + 1e-9));
}

// A limit with a kernel factor of 1.
RatioLimit limit_of(int freedom, int freedom_of_estimate, int by_chance) {
  RatioLimit limit{1.0,
                   std::pow(kStep, freedom),
                   std::pow(kStep, freedom_of_estimate),
                   std::pow(kStep, by_chance)};
  // In double, because long double takes ten times as long.
  using InDouble = boost::math::policies::policy<boost::math::policies::promote_double<false>>;
  const boost::math::fisher_f_distribution<double, InDouble> ratio(limit.freedom,
                                                                   limit.freedom_of_estimate);
  limit.value = std::sqrt(boost::math::quantile(boost::math::complement(ratio, limit.by_chance)));
  return limit;
}

// Computed once for the same arguments.
RatioLimit known_limit(int freedom, int freedom_of_estimate, int by_chance) {
  static std::mutex mutex;
  static std::map<std::array<int, 3>, RatioLimit> known;
  const std::lock_guard lock(mutex);
  const auto [found, is_new] =
      known.try_emplace({freedom, freedom_of_estimate, by_chance}, RatioLimit());
  if (is_new) {
    found->second = limit_of(freedom, freedom_of_estimate, by_chance);
  }
  return found->second;
}

}  // namespace

void Scatter::add(double mean, double mean_of_squares, int passes) {
  const double relative = mean > 0.0 ? mean_of_squares / squared(mean) - 1.0 : 0.0;
  if (passes > 1 && relative > kEqual && std::isfinite(relative)) {
    relative_ += relative * passes;
    freedom_ += passes - 1;
  }
}

double Scatter::freedom() const {
  const double all = relative_ + kUnknownWeight * 2.0 / kUnknownFreedom;
  return 2.0 * std::max(freedom_, kUnknownWeight) / all;
}

void VariancePrior::add(double ratio) {
  if (!std::isfinite(ratio)) {
    return;
  }
  sum_ += ratio;
  squares_ += squared(ratio);
  count_ += 1.0;
}

double VariancePrior::mean() const {
  return count_ == 0.0 ? 1.0 : sum_ / count_;
}

double VariancePrior::weight(double freedom) const {
  if (count_ < 2.0 || !(sum_ > 0.0)) {
    return 0.0;
  }
  const double of_others = freedom * (count_ - 1.0) / 2.0;
  const double relative = (squares_ / count_ / squared(mean()) - 1.0) * count_ / (count_ - 1.0);
  const double excess = relative * freedom - 2.0;
  if (excess <= 0.0) {
    return of_others;
  }
  return std::clamp((2.0 * freedom - 4.0 + 4.0 * relative * freedom) / excess, 0.0, of_others);
}

double freedom_of_sum(double share, double freedom, double of_rest) {
  return 1.0 / (squared(share) / freedom + squared(1.0 - share) / of_rest);
}

RatioLimit ratio_limit(double kernel_factor,
                       double freedom,
                       double freedom_of_estimate,
                       double by_chance) {
  RatioLimit limit = known_limit(step_below(std::min(freedom, kMostFreedom)),
                                 step_below(std::min(freedom_of_estimate, kMostFreedom)),
                                 step_below(by_chance));
  limit.kernel_factor = kernel_factor;
  limit.value *= kernel_factor;
  return limit;
}

RatioLimit ratio_limit(double kernel_factor,
                       double freedom,
                       const PartlyMeasured& scale,
                       double by_chance) {
  const double all = scale.derived + scale.measured;
  if (!(all > 0.0) || !std::isfinite(all) || !std::isfinite(scale.estimate)) {
    return ratio_limit(kernel_factor, freedom, freedom, by_chance);
  }
  const double of_scale =
      scale.measured > 0.0 ? scale.freedom * squared(all / scale.measured) : kMostFreedom;
  const RatioLimit mixed = ratio_limit(kernel_factor, freedom, of_scale, by_chance);
  const RatioLimit alone = ratio_limit(
      kernel_factor * std::sqrt(scale.estimate / all), freedom, scale.freedom, by_chance);
  return alone.value > mixed.value ? alone : mixed;
}

}  // namespace ttrace
