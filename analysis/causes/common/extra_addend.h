// Sums with an addend that does not belong there, or without one that does:
// candidate = reference + a_1 x_1 + a_2 x_2 + ...
//
// Thread-safety: free functions without shared state.
#pragma once

#include "analysis/causes/common/evidence.h"
#include "analysis/causes/common/hypothesis.h"

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace ttrace {

// Something that may be in the sum.
struct ExtraAddend {
  std::vector<double> values;  // as long as the difference that it is fitted to
  std::string name;            // "s0/main_grad/w/0, its value one step earlier"
  // What a coefficient and its standard error mean, ": ..." or " (...)"; empty for nothing.
  std::function<std::string(double, double)> meaning = {};
};

// How the addends explain `difference`, c - r at the places that they are known at; nothing where
// they leave more than `allowed`.
[[nodiscard]] std::optional<Hypothesis> read_extra_addends(std::span<const ExtraAddend> addends,
                                                           std::span<const double> difference,
                                                           double allowed);

}  // namespace ttrace
