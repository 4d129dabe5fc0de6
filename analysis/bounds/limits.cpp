#include "analysis/bounds/limits.h"

#include "trace/base/kind.h"

#include <array>
#include <cmath>

namespace ttrace {
namespace {

// Default factors: largest clean relative error in units of one rounding, with room for depth
// (measured: 6 for activations after 8 layers, 17 for gradients); the first Adam update is nearly
// the sign of the gradient, so parameters have no useful default.
struct Row {
  TensorClass tensor_class = TensorClass::kActivation;
  std::string_view name;
  double default_factor = 0.0;
};

// Of the statistics, in their order. At a factor of 1 the largest error of clean runs came to 1.05
// and 0.61 of its limit in T2 (40 random layouts and tests/end_to_end), and in T1 to 1.14 and 0.52
// (37 runs of docs/figures/ledger.md; ttrace_fuzz_layouts bf16 20 56001, fp8 10 56003, f32 10
// 56002). No kernel was seen that shares
// one error among all elements, which chance does not explain.
constexpr std::array<double, kStatistics.size()> kKernelFactors = {1.25, 1.0, 1.25, 1.0};

constexpr std::array kRows = {
    Row{TensorClass::kActivation, "activation", 12.0},
    Row{TensorClass::kActivationGradient, "activation gradient", 40.0},
    Row{TensorClass::kWeightGradient, "weight gradient", 40.0},
    Row{TensorClass::kVector, "vector", 100.0},
    Row{TensorClass::kOptimizerMatrix, "optimizer result", 100.0},
    Row{TensorClass::kOptimizerVector, "optimizer result of a vector", 100.0},
    Row{TensorClass::kLoss, "loss", 12.0},
    Row{TensorClass::kScale, "scale", 40.0},
    Row{TensorClass::kScalar, "scalar", 40.0},
};

// A row stands at its class's number.
static_assert([] {
  for (std::size_t number = 0; number < kRows.size(); ++number) {
    if (static_cast<std::size_t>(kRows[number].tensor_class) != number) {
      return false;
    }
  }
  return kRows.size() == kTensorClasses.size();
}());

const Row& row_of(TensorClass tensor_class) {
  return kRows[static_cast<std::size_t>(tensor_class)];
}

}  // namespace

bool is_exact(const TensorId& id, ElementType type) {
  if (!is_floating(type)) {
    return true;
  }
  // Later parameters have passed through updates.
  return must_be_equal(id.kind) || (id.kind == Kind::kParam && id.step == 0);
}

TensorClass class_of(const TensorId& id, std::size_t dimensions) {
  switch (family_of(id.kind)) {
    case KindFamily::kActivationGradient:
      return TensorClass::kActivationGradient;
    case KindFamily::kParameterGradient:
    case KindFamily::kMoment:
    case KindFamily::kState:
      return dimensions > 1 ? TensorClass::kWeightGradient : TensorClass::kVector;
    case KindFamily::kParameter:
      return dimensions > 1 ? TensorClass::kOptimizerMatrix : TensorClass::kOptimizerVector;
    case KindFamily::kQuantisation:
      return id.kind != Kind::kOperand                    ? TensorClass::kScale
             : is_of_quantised_gradient(id.kind, id.slot) ? TensorClass::kActivationGradient
                                                          : TensorClass::kActivation;
    case KindFamily::kLoss:
      return TensorClass::kLoss;
    case KindFamily::kScalar:
      return TensorClass::kScalar;
    default:
      return TensorClass::kActivation;
  }
}

bool is_optimizer_result(TensorClass tensor_class) {
  return tensor_class == TensorClass::kOptimizerMatrix ||
         tensor_class == TensorClass::kOptimizerVector;
}

std::string_view name_of(TensorClass tensor_class) {
  return row_of(tensor_class).name;
}

std::string_view name_of(Statistic statistic) {
  constexpr std::array<std::string_view, kStatistics.size()> kNames = {
      "T2", "T2 factor", "T1", "T1 factor"};
  return kNames.at(static_cast<std::size_t>(statistic));
}

double shipped_factor(Statistic statistic) {
  return kKernelFactors.at(static_cast<std::size_t>(statistic));
}

double Limits::of(Statistic statistic) const {
  const auto found = calibrated_.find(statistic);
  return found == calibrated_.end() ? shipped_factor(statistic) : found->second;
}

double default_factor(TensorClass tensor_class, std::int64_t step) {
  constexpr double kAfterUpdates = 250.0;
  return step > 0 ? kAfterUpdates : row_of(tensor_class).default_factor;
}

double unit_of(ElementType precision) {
  constexpr double kOrderOfSummation = 12.0;
  constexpr double kAveragedInProducts = 0.4;
  switch (precision) {
    case ElementType::kF32:
    case ElementType::kF64:
      return kOrderOfSummation * rounding_error(precision);
    case ElementType::kE4M3:
      return kAveragedInProducts * rounding_error(precision);
    default:
      return rounding_error(precision);
  }
}

double rounding_of_scalars(ElementType precision) {
  return rounding_error(precision == ElementType::kE4M3 ? ElementType::kBF16 : precision);
}

}  // namespace ttrace
