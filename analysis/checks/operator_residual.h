// The error of a tensor's own operators; operator_check.h has the formulas.
#pragma once

#include "analysis/bounds/bounds.h"
#include "analysis/bounds/spread.h"
#include "analysis/bounds/yardstick.h"
#include "analysis/checks/slices.h"
#include "analysis/findings/check.h"

#include <optional>
#include <vector>

namespace ttrace {

// The error of a tensor's own operators; see operator_check.h. Norms are Frobenius norms.
struct OperatorResidual {
  double error = 0.0;     // ||c - f||
  double native = 0.0;    // ||n - f||
  double rounding = 0.0;  // u ||c||
  double least = 0.0;     // that the operators round: `rounding`, and what a product adds to it
  double anywhere = 0.0;  // squared scale that may all lie in one part
  // Squared, of each index of the last dimension; empty: not known by index.
  std::vector<double> least_by_column = {};
  std::vector<double> sums_by_column = {};  // what ranks round of their addends
  double norm = 0.0;                        // ||f||
  double bit_equal = 0.0;                   // part of the elements in which c is n
  double unlike = 0.0;         // elements that are finite in c alone, or in neither f nor n
  RatioLimit ratio = {};       // its value: the largest R that passes; Inf: any
  Yardstick yardstick = {};    // max(native, rounding)^2 and the components of e^2
  double factor = 0.0;         // <c, f> / <f, f>
  double native_factor = 0.0;  // <n, f> / <f, f>
  // The worst part and the factor, where the tensor has slices or is a sum of ranks' addends.
  std::optional<SliceComparison> slice = {};
  std::optional<FactorComparison> in_noise = {};
  std::optional<Hypothesis> claim = {};  // where the check of addends knows it

  [[nodiscard]] double scale() const { return yardstick.scale(); }
  // What the operators themselves round, without what the layout adds.
  [[nodiscard]] double own() const;
  // R; 0 if the error is 0, Inf where only the scale is.
  [[nodiscard]] double residual() const;
  // Keeps the figures of the whole tensor, all of which are within bound.
  void leave_unjudged();
};

// The checks of the whole tensor, of its worst part and of a factor. `candidate_norm` is ||c||.
[[nodiscard]] std::vector<Check> checks_of(const OperatorResidual& residual, double candidate_norm);

}  // namespace ttrace
