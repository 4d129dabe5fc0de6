// How far chance alone takes an error above the scale that a few passes show.
//
// A squared error is a sum over elements, so it is about chi-squared distributed with nu degrees of
// freedom: many where elements err independently, few where they err alike or where a few of them
// decide. The passes' squared errors x_1 ... x_K are such sums, and so is that of a right
// candidate:
//
//   nu:     the variance of a chi-squared variable over its squared mean is 2 / nu
//   ratio:  ||c - r||^2 / mean_k x_k is F distributed with nu and K nu degrees of freedom
//   limit:  kernel factor x sqrt(quantile of F that a share p of right errors exceeds)
//
// The kernel factor is what other kernels err more than the reference's own with noise: see
// limits.h.
//
// K numbers say little of nu, so that all tensors of a kind, or all slices of a tensor, tell it
// together (Scatter). What K numbers say of one tensor's or slice's variance is mixed with what its
// like have on average; with how much weight, follows from how much those differ from one another
// (VariancePrior): if variances are scaled inverse chi-squared with d degrees of freedom, their
// estimates over the mean have an F distribution with a = K nu and d, whose relative variance is
//
//   R = 2 (a + d - 2) / (a (d - 4)),  so  d = (2 a - 4 + 4 R a) / (R a - 2)
//
// and the mixed estimate (a v_i + d v) / (a + d) has a + d degrees of freedom.
//
// Sources: Smyth, Statistical Applications in Genetics and Molecular Biology 3 (2004), for the
// estimates that borrow from others; Satterthwaite, Biometrics Bulletin 2 (1946), for nu.
//
// Thread-safety: plain values, and free functions that may be called from any thread.
#pragma once

#include <cstdint>

namespace ttrace {

// Of one run of right programs, any check of T2 alarms with this probability; the checks of all
// tensors share it (Bonferroni), however they depend on one another.
inline constexpr double kFalseAlarmsPerRun = 1e-3;

// How much passes differ in what they do to one thing: over many things, the degrees of freedom of
// one pass.
class Scatter {
 public:
  // K squared errors of one tensor or slice, by their mean and the mean of their squares. Passes
  // that are equal, or one alone, tell nothing.
  void add(double mean, double mean_of_squares, int passes);
  // nu. Cautious where little is known: another thing, of kUnknownFreedom, counts as well.
  [[nodiscard]] double freedom() const;

 private:
  double relative_ = 0.0;  // sum_i sum_k (x_ik / mean_i - 1)^2
  double freedom_ = 0.0;   // K - 1 of each
};

// How much things of one sort differ from what they have on average.
class VariancePrior {
 public:
  // An estimated variance over the one that is expected of such a thing.
  void add(double ratio);
  // The mean of the ratios; 1 of none.
  [[nodiscard]] double mean() const;
  // d, where every ratio has `freedom` degrees of freedom; 0 of fewer than two. At most what half
  // of the others tell together, so that a few, alike by chance, do not vouch for one another.
  [[nodiscard]] double weight(double freedom) const;

 private:
  double sum_ = 0.0;
  double squares_ = 0.0;
  double count_ = 0.0;
};

// Degrees of freedom of a sum of two estimates, of which the first has `share` of it and `freedom`
// of its own, the other one `of_rest` (Satterthwaite).
[[nodiscard]] double freedom_of_sum(double share, double freedom, double of_rest);

// A limit, and where it is from.
struct RatioLimit {
  double kernel_factor = 1.0;
  double freedom = 1.0;              // of the error
  double freedom_of_estimate = 1.0;  // of the scale
  double by_chance = 1.0;            // share of right errors that exceed it
  double value = 0.0;                // of the ratio of the norms, not of their squares
};

// A squared scale.
struct PartlyMeasured {
  double derived = 0.0;   // from formats and the placement
  double measured = 0.0;  // beyond that
  double estimate = 0.0;  // all that was measured, which may be below what is derived
  double freedom = 1.0;   // of the estimate
};

// Rounds the degrees of freedom down and the probability too, by at most a tenth, so that
// there are few different limits; keeps those that it has made. Requires: all above 0.
[[nodiscard]] RatioLimit ratio_limit(double kernel_factor,
                                     double freedom,
                                     double freedom_of_estimate,
                                     double by_chance);

// Of an error whose squared scale is `derived` plus `measured`: the sum is known with the
// estimate's freedom times (sum / measured)^2 (Satterthwaite). An estimate may be small by chance,
// so that what `estimate`, all that was measured, allows by itself is the least.
[[nodiscard]] RatioLimit ratio_limit(double kernel_factor,
                                     double freedom,
                                     const PartlyMeasured& scale,
                                     double by_chance);

}  // namespace ttrace
