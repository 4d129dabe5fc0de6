// How near right programs come to their bounds, beside what the error model expects.
//
// A check's share is its value over its bound. Of many checks of clean runs, the model says how
// many reach a share x: with the limit L = kernel factor x root of F's quantile, the ratio of
// squared norms exceeds (x L)^2 with the probability that F gives it, if other kernels err no more
// than noise shows. Of the worst of m parts, one in 1 - (1 - p)^m does.
//
// Thread-safety: one thread at a time.
#pragma once

#include "analysis/findings/report.h"

#include <nlohmann/json.hpp>

#include <array>
#include <cstddef>
#include <map>
#include <string>

namespace ttrace::roc {

class Shares {
 public:
  // Counts the checks of T1 and T2 whose limit is a quantile of F.
  void add(const Report& clean);

  // By question: checks, and of those that reach a share how many did and how many were expected.
  [[nodiscard]] nlohmann::ordered_json json() const;
  // SVG. Solid: observed; dashed: expected.
  [[nodiscard]] std::string plot() const;

 private:
  static constexpr std::size_t kBins = 25;  // of 0.05 each
  struct Curve {
    std::array<double, kBins> observed = {};
    std::array<double, kBins> expected = {};
    std::size_t checks = 0;
    double largest = 0.0;
  };
  static void add(const Check& check, double parts, Curve& curve);

  std::map<Question, Curve> curves_;
};

}  // namespace ttrace::roc
