// The element types that a trace can hold, and their conversion to and from double.
//
// HDF5's own conversions are not used: they are slow for bf16 and wrong for some small formats.
//
// Thread-safety: free functions without shared state.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace ttrace {

// The numbers are part of the file format.
enum class ElementType : std::uint8_t {
  kF64 = 0,
  kF32 = 1,
  kF16 = 2,
  kBF16 = 3,
  kI64 = 4,
  kI32 = 5,
  kU8 = 6,
  kBool = 7,
  kE4M3 = 8,   // torch's Float8_e4m3fn: 4 bits of exponent, 3 of mantissa, no infinity, largest 448
  kE5M2 = 9,   // torch's Float8_e5m2: as an upper half of f16
  kE8M0 = 10,  // torch's Float8_e8m0fnu: a power of two, 2^-127 to 2^127, or NaN
  kE2M1 = 11,  // a half of torch's Float4_e2m1fn_x2: 0, 0.5, 1, 1.5, 2, 3, 4, 6; one code to a byte
};

// What the bits of a floating type mean.
//
// A finite number is (-1)^sign 2^(max(exponent, 1) - bias) (leading + mantissa / 2^mantissa_bits),
// with a leading 1 where the exponent is above 0. E8M0 is 2^(exponent - bias): it has no zero.
//
// Sources: IEEE 754; OCP 8-bit Floating Point Specification; OCP Microscaling Formats.
struct FloatFormat {
  int bits = 0;  // of an element
  int exponent_bits = 0;
  int mantissa_bits = 0;  // stored ones
  int bias = 0;
  bool has_infinity = false;
  double largest = 0.0;  // finite
  // Relative error (Frobenius) that one rounding to nearest leaves in a tensor; measured.
  double rounding = 0.0;

  // Of normal numbers. The lowest exponent of a format that has a zero belongs to it.
  [[nodiscard]] int smallest_exponent() const { return (bits > exponent_bits ? 1 : 0) - bias; }
  // The smallest number above zero.
  [[nodiscard]] double smallest() const {
    return std::ldexp(1.0, smallest_exponent() - mantissa_bits);
  }
  // The smallest magnitude that rounds to infinity where the format has one: half a unit in the
  // last place above the largest.
  [[nodiscard]] double overflow() const {
    return largest + std::ldexp(1.0, std::ilogb(largest) - mantissa_bits - 1);
  }
};

// Throws InternalError for an integer type.
[[nodiscard]] const FloatFormat& format_of(ElementType type);

// Size of one element in bytes.
[[nodiscard]] std::size_t element_size(ElementType type);
// The name in files and reports: "f64", "f32", "f16", "bf16", "i64", "i32", "u8", "bool", "e4m3",
// "e5m2", "e8m0", "e2m1".
[[nodiscard]] std::string_view name_of(ElementType type);
// Inverse of name_of(). Throws FormatError for any other name.
[[nodiscard]] ElementType parse_element_type(std::string_view name);
// Whether the type is none of the integers and kBool; E8M0 is floating.
[[nodiscard]] bool is_floating(ElementType type);

// Relative error (Frobenius) that one rounding to nearest leaves in a tensor of this type; 0 for
// integers and E8M0, which holds scales. BF16 0.00166, F16 0.000208, E4M3 0.0265, E5M2 0.0527, E2M1
// 0.105 (measured); F32 and F64 scaled by their mantissa bits.
[[nodiscard]] double rounding_error(ElementType type);

// Widens `count` elements to double, exactly but for i64 beyond 2^53. The caller owns both arrays,
// of `count` elements each; they must not overlap.
void to_double(ElementType type, const void* source, std::int64_t count, double* target);
// Rounds `count` doubles to the nearest value of `type`, ties to even. Integers saturate at the
// ends of their range and NaN becomes 0; any non-zero value becomes a true bool. The arrays are as
// above.
void from_double(ElementType type, const double* source, std::int64_t count, void* target);

}  // namespace ttrace
