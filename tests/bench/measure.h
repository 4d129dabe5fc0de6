// Timing by ratios: two pieces of work run in turn, so that what else the machine does falls on
// both.
#pragma once

#include <functional>
#include <vector>

namespace ttrace::bench {

using Work = std::function<void()>;

// Wall time of one call.
[[nodiscard]] double seconds(const Work& work);

[[nodiscard]] double median(std::vector<double> values);

// Use this for single times: the machine's other work can only add to them.
[[nodiscard]] double shortest(const std::vector<double>& values);

// Seconds of two pieces of work, measured in turn.
struct Pairs {
  std::vector<double> first;
  std::vector<double> second;

  // first / second, pair by pair.
  [[nodiscard]] std::vector<double> ratios() const;
};

// One pair unmeasured, then `count`; which one goes first changes from pair to pair.
[[nodiscard]] Pairs in_turn(int count, const Work& first, const Work& second);

struct Interval {
  double low = 0.0;
  double high = 0.0;
};

// 95 % bootstrap interval of the median: resampled with a fixed seed.
[[nodiscard]] Interval interval_of_median(const std::vector<double>& values);

}  // namespace ttrace::bench
