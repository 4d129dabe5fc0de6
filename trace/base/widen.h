// Elements of small formats as doubles, on the host and on a GPU; exact.
#pragma once

#include "trace/base/host_device.h"

#include <cstdint>
#include <cstring>

namespace ttrace {

// The same bits as another type of the same size.
template <class To, class From>
TTRACE_KERNEL To with_bits_of(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
#if defined(__CUDA_ARCH__)
  memcpy(&to, &from, sizeof(to));
#else
  std::memcpy(&to, &from, sizeof(to));
#endif
  return to;
}

TTRACE_KERNEL bool is_finite(double value) {
  return (with_bits_of<std::uint64_t>(value) >> 52U & 0x7ffU) != 0x7ffU;
}

TTRACE_KERNEL double magnitude_of(double value) {
  return with_bits_of<double>(with_bits_of<std::uint64_t>(value) & 0x7fffffffffffffffU);
}

TTRACE_KERNEL double quiet_nan() {
  return with_bits_of<double>(std::uint64_t{0x7ff8000000000000U});
}

// 2 to the power of `exponent`, which lies within the normal numbers.
TTRACE_KERNEL double power_of_two(int exponent) {
  return with_bits_of<double>(static_cast<std::uint64_t>(exponent + 1023) << 52U);
}

// There is no branch, so that loops over it vectorise.
TTRACE_KERNEL double widen_half(std::uint16_t bits) {
  constexpr std::uint32_t kRebias = (127U - 15U) << 23U;
  const std::uint32_t magnitude = (bits & 0x7fffU) << 13U;
  const std::uint32_t exponent = magnitude & 0x0f800000U;
  // An exponent of ones stays all ones: NaN and Inf.
  const std::uint32_t normal = magnitude + kRebias + (exponent == 0x0f800000U ? kRebias : 0U);
  // If the exponent is zero, the mantissa counts steps of 2^-24.
  const float subnormal = static_cast<float>(static_cast<std::int32_t>(bits & 0x3ffU)) * 0x1p-24F;
  const std::uint32_t value = exponent == 0 ? with_bits_of<std::uint32_t>(subnormal) : normal;
  return static_cast<double>(with_bits_of<float>(value | (bits & 0x8000U) << 16U));
}

TTRACE_KERNEL double widen_brain(std::uint16_t bits) {  // the upper half of a float
  return static_cast<double>(with_bits_of<float>(std::uint32_t{bits} << 16U));
}

// A code of a format of 8 bits with sign, exponent and mantissa. `overflow`: the magnitude from
// which on codes are not numbers; `has_infinity`: the first of them is infinity.
TTRACE_KERNEL double widen_code(
    std::uint8_t code, int mantissa_bits, int bias, unsigned overflow, bool has_infinity) {
  const unsigned magnitude = code & 0x7fU;
  const auto exponent = static_cast<int>(magnitude >> static_cast<unsigned>(mantissa_bits));
  const unsigned mantissa = magnitude & ((1U << static_cast<unsigned>(mantissa_bits)) - 1U);
  const unsigned leading = exponent == 0 ? 0U : 1U << static_cast<unsigned>(mantissa_bits);
  double value = static_cast<double>(leading | mantissa) *
                 power_of_two((exponent == 0 ? 1 : exponent) - bias - mantissa_bits);
  if (magnitude >= overflow) {
    value = magnitude == overflow && has_infinity
                ? with_bits_of<double>(std::uint64_t{0x7ff0000000000000U})
                : quiet_nan();
  }
  return code < 0x80U ? value : -value;
}

TTRACE_KERNEL double widen_e4m3(std::uint8_t code) {
  return widen_code(code, 3, 7, 0x7f, false);
}

TTRACE_KERNEL double widen_e5m2(std::uint8_t code) {
  return widen_code(code, 2, 15, 0x7c, true);
}

TTRACE_KERNEL double widen_e2m1(std::uint8_t code) {  // one of 4 bits
  const double value = widen_code(code & 7U, 1, 1, 8U, false);
  return (code & 8U) == 0U ? value : -value;
}

TTRACE_KERNEL double widen_e8m0(std::uint8_t code) {
  return code == 255U ? quiet_nan() : power_of_two(static_cast<int>(code) - 127);
}

}  // namespace ttrace
