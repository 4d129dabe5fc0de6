// The square of a number that is an expression.
#pragma once

namespace ttrace {

[[nodiscard]] constexpr double squared(double value) {
  return value * value;
}

}  // namespace ttrace
