// Which class of tensors a tensor belongs to, and the kernel factors of T1 and T2: how much more
// another kernel may err than the scale says. What chance adds to them is in spread.h; what makes
// up a scale in bounds.h (T2) and operator_check.h (T1).
//
// Factors for a program of one's own replace these where it has a calibration, see calibration.h.
// Scales, class defaults and choices of experts never depend on them.
//
// Thread-safety: free functions without shared state; Limits is a plain value.
#pragma once

#include "analysis/bounds/allowance.h"
#include "analysis/findings/tensor_class.h"

#include <ttrace/element_type.h>
#include <ttrace/tensor_id.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string_view>

namespace ttrace {

// What is held against a limit.
enum class Statistic : std::uint8_t {
  kOfReference,        // T2: the kernel factor of spread.h, of tensors and parts against noise
  kFactorOfReference,  // the same of a factor that all elements have in common
  kOfOperators,        // T1: the same against the operators' own rounding
  kFactorOfOperators,
};

inline constexpr std::array kTensorClasses = {TensorClass::kActivation,
                                              TensorClass::kActivationGradient,
                                              TensorClass::kWeightGradient,
                                              TensorClass::kVector,
                                              TensorClass::kOptimizerMatrix,
                                              TensorClass::kOptimizerVector,
                                              TensorClass::kLoss,
                                              TensorClass::kScale,
                                              TensorClass::kScalar};
inline constexpr std::array kStatistics = {Statistic::kOfReference,
                                           Statistic::kFactorOfReference,
                                           Statistic::kOfOperators,
                                           Statistic::kFactorOfOperators};

// "activation gradient"; "T2", "T1 factor".
[[nodiscard]] std::string_view name_of(TensorClass tensor_class);
[[nodiscard]] std::string_view name_of(Statistic statistic);

[[nodiscard]] double shipped_factor(Statistic statistic);

// The shipped kernel factors, those that are calibrated replaced, and the rows of the ledger that
// are in force.
class Limits {
 public:
  Limits() = default;
  explicit Limits(const Allowances& allowances) : allowances_(allowances) {}

  void calibrate(Statistic statistic, double factor) { calibrated_[statistic] = factor; }
  [[nodiscard]] bool is_calibrated(Statistic statistic) const {
    return calibrated_.contains(statistic);
  }
  [[nodiscard]] double of(Statistic statistic) const;
  [[nodiscard]] bool has(Allowance allowance) const { return allowances_.has(allowance); }
  [[nodiscard]] double granted(Allowance allowance, double value) const {
    return allowances_.granted(allowance, value);
  }
  [[nodiscard]] const Allowances& allowances() const { return allowances_; }

 private:
  std::map<Statistic, double> calibrated_;
  Allowances allowances_;
};

// Without noise: bound / (rounding error * ||r||). After step 0 all classes have one
// factor: every value has passed through updated parameters.
[[nodiscard]] double default_factor(TensorClass tensor_class, std::int64_t step);

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

// The relative error u of one rounding, as it shows in results. BF16 and F16: storing dominates, so
// it is rounding_error(). F32 and F64: the order of summation dominates; noise passes move such
// results uniformly by up to 6 units in the last place, 12 times the error of one rounding. E4M3,
// the operands of FP8 products: a sum averages their errors and the residual stream adds them to
// what has none. Measured on two layers, relative errors of clean runs against the reference:
// activations 0.067, activation gradients 0.115, weight gradients 0.067; the factor makes the
// default of activations twice the first.
[[nodiscard]] double unit_of(ElementType precision);

// Relative error of one rounding of a scalar: where products have FP8 operands, everything else,
// sums above all, is BF16 or better.
[[nodiscard]] double rounding_of_scalars(ElementType precision);

}  // namespace ttrace
