#include "analysis/limits.h"

#include <array>

namespace ttrace {
namespace {

// Vectors: their noise is the least well estimated one, because kernels may reduce in low precision
// inside, where output noise does not reach; five passes measured 1.95.
// Scalars: s comes from one number per pass, and a sample of five is no distribution; a limit of 5
// still gave 3 % false alarms. They are judged through the vectors that they summarise.
// Default factors: largest clean relative error in units of one rounding, with room for depth
// (measured: 6 for activations after 8 layers, 17 for gradients); the first Adam update is nearly
// the sign of the gradient, so parameters have no useful default.
constexpr std::array kLimits = {
    ClassLimit{TensorClass::kActivation, "activation", 2.0, 12.0, 10.0, 4.6, 8.0},
    ClassLimit{TensorClass::kActivationGradient, "activation gradient", 2.0, 40.0, 10.0, 4.6, 8.0},
    ClassLimit{TensorClass::kWeightGradient, "weight gradient", 2.0, 40.0, 10.0, 4.6, 8.0},
    ClassLimit{TensorClass::kVector, "vector", 4.0, 100.0, 0.0, 0.0, 0.0},
    ClassLimit{TensorClass::kOptimizerMatrix, "optimizer result", 2.0, 400.0, 0.0, 0.0, 0.0},
    ClassLimit{
        TensorClass::kOptimizerVector, "optimizer result of a vector", 4.0, 400.0, 0.0, 0.0, 0.0},
    ClassLimit{TensorClass::kLoss, "loss", 2.0, 12.0, 10.0, 4.6, 8.0},
    ClassLimit{TensorClass::kScale, "scale", 2.0, 40.0, 0.0, 0.0, 0.0},
    ClassLimit{TensorClass::kScalar, "scalar", 10.0, 40.0, 0.0, 0.0, 0.0},
};

}  // namespace

bool is_exact(const TensorId& id, ElementType type) {
  if (!is_floating(type)) {
    return true;
  }
  switch (id.kind) {
    case Kind::kData:
    case Kind::kMask:
      return true;
    case Kind::kParam:
      return id.step == 0;  // later ones have passed through updates
    default:
      return false;
  }
}

TensorClass class_of(Kind kind, std::size_t dimensions) {
  switch (kind) {
    case Kind::kGradOutput:
    case Kind::kGradInput:
      return TensorClass::kActivationGradient;
    case Kind::kParamGrad:
    case Kind::kMainGrad:
    case Kind::kExpAvg:
    case Kind::kExpAvgSq:
      return dimensions > 1 ? TensorClass::kWeightGradient : TensorClass::kVector;
    case Kind::kParam:
    case Kind::kMaster:
    case Kind::kParamNext:
      return dimensions > 1 ? TensorClass::kOptimizerMatrix : TensorClass::kOptimizerVector;
    case Kind::kScale:
    case Kind::kAmaxHistory:
      return TensorClass::kScale;
    case Kind::kLoss:
      return TensorClass::kLoss;
    case Kind::kScalar:
      return TensorClass::kScalar;
    default:
      return TensorClass::kActivation;
  }
}

bool is_optimizer_result(TensorClass tensor_class) {
  return tensor_class == TensorClass::kOptimizerMatrix ||
         tensor_class == TensorClass::kOptimizerVector;
}

const ClassLimit& limit_of(TensorClass tensor_class) {
  return kLimits[static_cast<std::size_t>(tensor_class)];
}

// Clean R is 1.0 but where a product of another size is computed by another kernel, which may round
// once more (a bias added to what was rounded: 1.5) or twice. Gradients of an attention core's
// inputs: ring attention adds up rounded parts of its own, which no sum over ranks tells of; 116
// random BF16 layouts reached 2.8, with four ranks.
double operator_limit(Kind kind) {
  constexpr double kLimit = 2.0;
  constexpr double kInputGradient = 4.0;
  return kind == Kind::kGradInput ? kInputGradient : kLimit;
}

double default_unit(ElementType precision) {
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
