#include "trace/base/unit_in_last_place.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace ttrace {

double unit_in_last_place(ElementType type, double value) {
  const FloatFormat& format = format_of(type);
  const int exponent = value == 0.0 ? format.smallest_exponent() : std::ilogb(value);
  return std::ldexp(1.0, std::max(exponent, format.smallest_exponent()) - format.mantissa_bits);
}

ElementType coarser(ElementType left, ElementType right) {
  const auto bits = [](ElementType type) {
    return is_floating(type) ? format_of(type).mantissa_bits
                             : std::numeric_limits<double>::digits - 1;
  };
  return bits(left) <= bits(right) ? left : right;
}

}  // namespace ttrace
