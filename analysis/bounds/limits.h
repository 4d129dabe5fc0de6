// Which class of tensors a tensor belongs to, and the limits of every class: the one table to tune.
//
// Noise (T2). The shipped kernel factor is 1: what chance explains is in spread.h, and what passes
// do not show in bounds.h. Over 40 clean runs of random
// models and layouts (BF16, F32, FP8) the largest error over its limit was 0.81 of a whole tensor,
// 0.68 of a part and 0.61 of a factor.
//
// Operators. Clean R is 1.0 but where a product of another size is computed by another kernel,
// which may round once more (a bias added to what was rounded: 1.5) or twice. Gradients of an
// attention core's inputs: ring attention adds up rounded parts of its own, which no sum over ranks
// tells of; 116 random BF16 layouts reached 2.8, with four ranks. Without context parallelism they
// are like others as a whole: 140 layouts reached 1.1. They cancel in the rows of a document's
// first tokens, where clean rows reached 10 in a ring and 3.1 elsewhere: these are not judged. Of
// features elsewhere the limit is 2.25 times that of R: in those layouts features of a row-parallel
// linear whose bias nearly cancels its product reached 2.9, for the product is rounded before the
// bias is added, and features of a gradient 3.3. Rows reached 1.8; their limit is 1.5 times that.
//
// Limits for a program of one's own replace these where it has a calibration, see calibration.h.
// What a statistic is never depends on limits: where a shipped limit is part of its scale
// (bounds.h), or decides what is not calibrated (choices of experts), it stays the shipped one.
//
// Thread-safety: free functions without shared state; Limits is a plain value.
#pragma once

#include "analysis/bounds/allowance.h"
#include "analysis/findings/tensor_class.h"

#include <ttrace/element_type.h>
#include <ttrace/tensor_id.h>

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace ttrace {

// What is held against a limit.
enum class Statistic : std::uint8_t {
  kOfReference,    // T2: the kernel factor of spread.h, of all that is held against noise
  kOperator,       // T1: R
  kOperatorSlice,  // T1: the same of parts and factor
  kOperatorRow,    // of all leading dimensions together
  kOperatorGroup,
  kOperatorFactor,
};

inline constexpr std::array kTensorClasses = {TensorClass::kActivation,
                                              TensorClass::kActivationGradient,
                                              TensorClass::kInputGradient,
                                              TensorClass::kWeightGradient,
                                              TensorClass::kVector,
                                              TensorClass::kOptimizerMatrix,
                                              TensorClass::kOptimizerVector,
                                              TensorClass::kLoss,
                                              TensorClass::kScale,
                                              TensorClass::kScalar};
inline constexpr std::array kStatistics = {Statistic::kOfReference,
                                           Statistic::kOperator,
                                           Statistic::kOperatorSlice,
                                           Statistic::kOperatorRow,
                                           Statistic::kOperatorGroup,
                                           Statistic::kOperatorFactor};

// "activation gradient"; "T2", "T1 slice".
[[nodiscard]] std::string_view name_of(TensorClass tensor_class);
[[nodiscard]] std::string_view name_of(Statistic statistic);

// Which limit.
struct LimitKey {
  TensorClass tensor_class = TensorClass::kActivation;
  Statistic statistic = Statistic::kOfReference;
  auto operator<=>(const LimitKey&) const = default;
};

// "activation gradient T1 slice".
[[nodiscard]] std::string to_string(const LimitKey& key);

// The largest value that passes; 0: not judged.
[[nodiscard]] double shipped_limit(const LimitKey& key);

// The shipped limits, those that are calibrated replaced, and the rows of the ledger that are in
// force.
class Limits {
 public:
  Limits() = default;
  explicit Limits(const Allowances& allowances) : allowances_(allowances) {}

  void calibrate(const LimitKey& key, double limit) { calibrated_[key] = limit; }
  [[nodiscard]] bool is_calibrated(const LimitKey& key) const { return calibrated_.contains(key); }
  [[nodiscard]] double of(const LimitKey& key) const;
  [[nodiscard]] bool has(Allowance allowance) const { return allowances_.has(allowance); }
  [[nodiscard]] double granted(Allowance allowance, double value, double without = 0.0) const {
    return allowances_.granted(allowance, value, without);
  }
  [[nodiscard]] const Allowances& allowances() const { return allowances_; }

 private:
  std::map<LimitKey, double> calibrated_;
  Allowances allowances_;
};

// Without noise: bound / (rounding error * ||r||). After step 0 all classes have one
// factor: every value has passed through updated parameters.
[[nodiscard]] double default_factor(TensorClass tensor_class,
                                    std::int64_t step,
                                    const Allowances& allowances = {});

// The largest error of one rounding over the usual one: half a unit in the last place, at a power
// of two.
inline constexpr double kLargestOverUsualRounding = 2.4;

// No scalars, which are judged through the tensors that they summarise, and no choices of experts.
[[nodiscard]] constexpr bool has_own_operators(Kind kind) {
  return kind != Kind::kScalar && kind != Kind::kRouting && kind != Kind::kStateBefore;
}

// Data, masks, integers, and parameters before the first update must be equal.
[[nodiscard]] bool is_exact(const TensorId& id, ElementType type);

// `dimensions` of the logical tensor: a parameter of one dimension is a vector. What a product
// consumes counts as an activation, a quantised weight too: the rounding to codes, which noise
// passes move, is far coarser than anything that updates do to it.
[[nodiscard]] TensorClass class_of(const TensorId& id, std::size_t dimensions);

[[nodiscard]] bool is_optimizer_result(TensorClass tensor_class);

// The smallest and the largest rho = ||c - g|| / ||r - g|| (golden_check.h) that pass; 0: not
// judged.
[[nodiscard]] double least_rho(TensorClass tensor_class, const Allowances& allowances = {});
[[nodiscard]] double largest_rho(TensorClass tensor_class, const Allowances& allowances = {});

// Relative error taken for one rounding in class defaults. BF16 and F16: storing dominates, so it
// is rounding_error(). F32 and F64: the order of summation dominates; noise passes move such
// results uniformly by up to 6 units in the last place, 12 times the error of one rounding. E4M3,
// the operands of FP8 products: a sum averages their errors and the residual stream adds them to
// what has none. Measured on two layers, relative errors of clean runs against the reference:
// activations 0.067, activation gradients 0.115, weight gradients 0.067; the factor makes the
// default of activations twice the first.
[[nodiscard]] double default_unit(ElementType precision, const Allowances& allowances = {});

// The largest ratio of two errors of `elements` numbers, one of which is the scale of the other:
// one in 10^7 of them is larger by chance where both are round-off of one size. Its square has an F
// distribution with as many degrees of freedom on either side: 11.6 for 8 elements, 4.5 for 16,
// below 2 from 64 on. 0 where there are so many that no other limit is as small.
[[nodiscard]] double limit_of_estimate(std::int64_t elements);

// The same for rows, whose scale is that of many: the error of `elements` numbers over it, which
// one in 10^9 rows exceeds by chance. Its square has a chi-squared distribution: 6.1 for one
// element, 3.5 for four, 2.5 for ten. REQUIRES: elements > 0.
[[nodiscard]] double limit_of_row_of(double elements);

// Relative error of one rounding of a scalar: where products have FP8 operands, everything else,
// sums above all, is BF16 or better.
[[nodiscard]] double rounding_of_scalars(ElementType precision);

}  // namespace ttrace
