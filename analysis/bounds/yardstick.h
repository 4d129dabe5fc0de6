// What the error of a right tensor is measured by: a variance, made of named components.
//
// Errors from different sources are independent, so their squares add up:
//
//   scale^2 = sum of the components
//
// A component is measured in passes of this very run, derived from formats and placements, or
// calibrated on clean runs of other programs (term.h). Those whose row of the ledger is switched
// off are left out here, and nowhere else.
//
// Thread-safety: plain values.
#pragma once

#include "analysis/bounds/allowance.h"
#include "analysis/findings/term.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace ttrace {

class Yardstick {
 public:
  Yardstick() = default;
  explicit Yardstick(const Allowances& allowances) : allowances_(allowances) {}

  // Zero adds no component.
  void add(Component component, double squared) {
    if (!(squared > 0.0) || !allowances_.has(component)) {
      return;
    }
    const auto known = std::ranges::find(components_, component, &ComponentValue::component);
    if (known == components_.end()) {
      components_.push_back({component, squared});
    } else {
      known->squared += squared;
    }
    squared_ += squared;
  }
  // Adds what is missing to `squared` in all.
  void raise_to(Component component, double squared) {
    add(component, std::max(0.0, squared - squared_));
  }

  [[nodiscard]] double squared() const { return squared_; }
  [[nodiscard]] double scale() const { return std::sqrt(squared_); }
  [[nodiscard]] const std::vector<ComponentValue>& components() const { return components_; }
  // 0 for one that it does not have.
  [[nodiscard]] double squared(Component component) const {
    const auto found = std::ranges::find(components_, component, &ComponentValue::component);
    return found == components_.end() ? 0.0 : found->squared;
  }

 private:
  Allowances allowances_;
  std::vector<ComponentValue> components_;
  double squared_ = 0.0;
};

}  // namespace ttrace
