#include "bench/measure.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <functional>
#include <random>

namespace ttrace::bench {

double seconds(const Work& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double median(std::vector<double> values) {
  const std::size_t middle = values.size() / 2;
  std::sort(values.begin(), values.end());
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2.0;
}

double shortest(const std::vector<double>& values) {
  return *std::min_element(values.begin(), values.end());
}

std::vector<double> Pairs::ratios() const {
  std::vector<double> result(first.size());
  std::transform(
      first.begin(), first.end(), second.begin(), result.begin(), std::divides<double>());
  return result;
}

Pairs in_turn(int count, const Work& first, const Work& second) {
  first();
  second();
  Pairs pairs;
  for (int i = 0; i < count; ++i) {
    if (i % 2 == 0) {
      pairs.first.push_back(seconds(first));
      pairs.second.push_back(seconds(second));
    } else {
      pairs.second.push_back(seconds(second));
      pairs.first.push_back(seconds(first));
    }
  }
  return pairs;
}

Interval interval_of_median(const std::vector<double>& values) {
  constexpr int kResamples = 10'000;
  std::mt19937 engine(1);
  std::uniform_int_distribution<std::size_t> draw(0, values.size() - 1);
  std::vector<double> medians;
  std::vector<double> resample(values.size());
  for (int i = 0; i < kResamples; ++i) {
    std::generate(resample.begin(), resample.end(), [&] { return values[draw(engine)]; });
    medians.push_back(median(resample));
  }
  std::sort(medians.begin(), medians.end());
  return {medians[kResamples / 40], medians[kResamples - 1 - kResamples / 40]};
}

}  // namespace ttrace::bench
