#include "analysis/bounds/spread.h"

#include "trace/sums/squared.h"

#include <boost/math/distributions/fisher_f.hpp>

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <tuple>

namespace ttrace {
namespace {

constexpr double kUnknownFreedom = 15.0;
constexpr double kUnknownWeight = 5.0;  // in comparisons of one pass with the mean
constexpr double kMostFreedom = 1e6;    // more would not change a limit
constexpr double kEqual = 1e-12;

// Down to a power of 1.1.
double coarse(double value) {
  constexpr double kStep = 1.1;
  return std::pow(kStep, std::floor(std::log(value) / std::log(kStep) + 1e-9));
}

double root_of_quantile(double freedom, double freedom_of_estimate, double by_chance) {
  using Key = std::tuple<double, double, double>;
  static std::mutex mutex;
  static std::map<Key, double> known;
  const Key key{freedom, freedom_of_estimate, by_chance};
  {
    const std::lock_guard lock(mutex);
    if (const auto found = known.find(key); found != known.end()) {
      return found->second;
    }
  }
  const boost::math::fisher_f_distribution<double> ratio(freedom, freedom_of_estimate);
  const double root = std::sqrt(boost::math::quantile(boost::math::complement(ratio, by_chance)));
  const std::lock_guard lock(mutex);
  known.emplace(key, root);
  return root;
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

RatioLimit ratio_limit(double kernel_factor,
                       double freedom,
                       double freedom_of_estimate,
                       double by_chance) {
  RatioLimit limit{kernel_factor,
                   coarse(std::min(freedom, kMostFreedom)),
                   coarse(std::min(freedom_of_estimate, kMostFreedom)),
                   coarse(by_chance)};
  limit.value =
      kernel_factor * root_of_quantile(limit.freedom, limit.freedom_of_estimate, limit.by_chance);
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
