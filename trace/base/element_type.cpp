#include "trace/base/table_of_enum.h"
#include "trace/base/widen.h"

#include <ttrace/element_type.h>
#include <ttrace/error.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace ttrace {
namespace {

struct TypeInfo {
  ElementType type;
  std::string_view name;
  int bits;
  FloatFormat format = {};  // without bits: an integer
};

constexpr double kRoundingOfBf16 = 0.00166;  // F32 and F64 are scaled by their mantissa bits

constexpr std::array kTypes = {
    TypeInfo{ElementType::kF64,
             "f64",
             64,
             {64,
              11,
              52,
              1023,
              true,
              std::numeric_limits<double>::max(),
              kRoundingOfBf16 / static_cast<double>(std::uint64_t{1} << 45U)}},
    TypeInfo{ElementType::kF32,
             "f32",
             32,
             {32,
              8,
              23,
              127,
              true,
              std::numeric_limits<float>::max(),
              kRoundingOfBf16 / static_cast<double>(std::uint64_t{1} << 16U)}},
    TypeInfo{ElementType::kF16, "f16", 16, {16, 5, 10, 15, true, 65504.0, 0.000208}},
    TypeInfo{ElementType::kBF16, "bf16", 16, {16, 8, 7, 127, true, 0x1.FEp127, kRoundingOfBf16}},
    TypeInfo{ElementType::kI64, "i64", 64},
    TypeInfo{ElementType::kI32, "i32", 32},
    TypeInfo{ElementType::kU8, "u8", 8},
    TypeInfo{ElementType::kBool, "bool", 8},
    TypeInfo{ElementType::kE4M3, "e4m3", 8, {8, 4, 3, 7, false, 448.0, 0.0265}},
    TypeInfo{ElementType::kE5M2, "e5m2", 8, {8, 5, 2, 15, true, 57344.0, 0.0527}},
    TypeInfo{ElementType::kE8M0, "e8m0", 8, {8, 8, 0, 127, false, 0x1p127, 0.0}},
    TypeInfo{ElementType::kE2M1, "e2m1", 8, {4, 2, 1, 1, false, 6.0, 0.105}},
};

static_assert(has_a_row_for_each(kTypes, &TypeInfo::type, ElementType::kE2M1));

const TypeInfo& info(ElementType type) {
  const auto number = static_cast<std::size_t>(type);
  TTRACE_CHECK(number < kTypes.size(),
               InternalError,
               "element type number ",
               number,
               " is unknown; numbers below ",
               kTypes.size(),
               " are known");
  return kTypes[number];
}

constexpr int kDoubleMantissaBits = 52;
constexpr int kDoubleBias = 1023;

// The bits of a finite magnitude, given as those of a double, in a format whose exponents have no
// end. Rounds once: going through float would round twice and be wrong for values that the first
// rounding turns into a tie.
std::uint64_t round_magnitude(const FloatFormat& format, std::uint64_t magnitude) {
  const auto smallest_normal = static_cast<std::uint64_t>(kDoubleBias + 1 - format.bias)
                               << kDoubleMantissaBits;
  if (magnitude < smallest_normal) {
    // Subnormals have a fixed spacing; the largest may round up to the smallest normal, whose bits
    // are the next integer.
    const double steps =
        std::ldexp(std::bit_cast<double>(magnitude), format.bias - 1 + format.mantissa_bits);
    return static_cast<std::uint64_t>(std::nearbyint(steps));
  }
  // Round to nearest even on the integer: a carry out of the mantissa is the next exponent.
  const int shift = kDoubleMantissaBits - format.mantissa_bits;
  const std::uint64_t half = std::uint64_t{1} << (shift - 1);
  const std::uint64_t odd = magnitude >> shift & 1;
  const auto rebias = static_cast<std::uint64_t>(kDoubleBias - format.bias) << format.mantissa_bits;
  return ((magnitude + half - 1 + odd) >> shift) - rebias;
}

constexpr std::uint64_t kMagnitude = 0x7fffffffffffffffu;

// Formats of 16 bits.
std::uint16_t encode(const FloatFormat& format, double value) {
  const auto bits = std::bit_cast<std::uint64_t>(value);
  const auto sign = static_cast<std::uint16_t>(bits >> 48 & 0x8000u);
  const std::uint64_t magnitude = bits & kMagnitude;
  const std::uint64_t infinity = 0x7fffu >> format.mantissa_bits << format.mantissa_bits;
  if (std::isnan(value)) {
    const std::uint64_t quiet = std::uint64_t{1} << (format.mantissa_bits - 1);
    const std::uint64_t payload =
        (magnitude & 0x000fffffffffffffu) >> (kDoubleMantissaBits - format.mantissa_bits);
    return static_cast<std::uint16_t>(sign | infinity | quiet | payload);
  }
  return static_cast<std::uint16_t>(sign | std::min(round_magnitude(format, magnitude), infinity));
}

// The code behind that of the largest number: infinity, or NaN if the format has no infinity. 8 is
// none of E2M1's magnitudes.
unsigned overflow_of(const FloatFormat& format) {
  return static_cast<unsigned>(
             round_magnitude(format, std::bit_cast<std::uint64_t>(format.largest))) +
         1U;
}

// Formats of at most 8 bits with a sign. A format that has neither infinity nor NaN saturates.
std::uint8_t encode_code(const FloatFormat& format, double value) {
  const auto bits = std::bit_cast<std::uint64_t>(value);
  const unsigned sign = static_cast<unsigned>(bits >> 63U)
                        << static_cast<unsigned>(format.bits - 1);
  const unsigned all_ones = (1U << static_cast<unsigned>(format.bits - 1)) - 1U;
  const std::uint64_t most = std::min(overflow_of(format), all_ones);
  const std::uint64_t code =
      std::isnan(value) ? all_ones : std::min(round_magnitude(format, bits & kMagnitude), most);
  return static_cast<std::uint8_t>(sign | code);
}

constexpr int kE8M0Bias = 127;
constexpr std::uint8_t kE8M0Nan = 255;

std::uint8_t encode_e8m0(double value) {
  if (!std::isfinite(value)) {
    return kE8M0Nan;
  }
  int exponent = 0;
  const double mantissa = std::frexp(std::abs(value), &exponent);  // in [0.5, 1), or 0
  const int code = exponent - 1 + (mantissa >= 0.75 ? 1 : 0) + kE8M0Bias;
  return static_cast<std::uint8_t>(value == 0.0 ? 0 : std::clamp<int>(code, 0, kE8M0Nan));
}

// Nearest integer, ends of the range for what lies beyond, 0 for NaN.
template <class Integer>
Integer round_to(double value) {
  if (std::isnan(value)) {
    return 0;
  }
  const double nearest = std::nearbyint(value);
  // 2^63 is a double, its predecessor among the integers is not: compare with the excluded end.
  const double end = std::ldexp(1.0, std::numeric_limits<Integer>::digits);
  if (nearest >= end) {
    return std::numeric_limits<Integer>::max();
  }
  if (nearest <= static_cast<double>(std::numeric_limits<Integer>::min())) {
    return std::numeric_limits<Integer>::min();
  }
  return static_cast<Integer>(nearest);
}

// Elements may lie at any address of a file, so they are copied and never dereferenced in place.
template <class Element, class Convert>
void widen(const void* source, std::int64_t count, double* target, Convert convert) {
  const auto* bytes = static_cast<const unsigned char*>(source);
  for (std::int64_t i = 0; i < count; ++i) {
    Element element;
    std::memcpy(&element, bytes + i * static_cast<std::int64_t>(sizeof(Element)), sizeof(Element));
    target[i] = convert(element);
  }
}

template <class Element, class Convert>
void narrow(const double* source, std::int64_t count, void* target, Convert convert) {
  auto* bytes = static_cast<unsigned char*>(target);
  for (std::int64_t i = 0; i < count; ++i) {
    const Element element = convert(source[i]);
    std::memcpy(bytes + i * static_cast<std::int64_t>(sizeof(Element)), &element, sizeof(Element));
  }
}

// The values of all codes of a format of at most 8 bits.
using Codes = std::array<double, 256>;

Codes make_codes(double (*decode)(std::uint8_t)) {
  Codes codes{};
  for (std::size_t code = 0; code < codes.size(); ++code) {
    codes[code] = decode(static_cast<std::uint8_t>(code));
  }
  return codes;
}

const Codes& codes_of(ElementType type) {
  static const std::array<Codes, 4> codes = {make_codes(widen_e4m3),
                                             make_codes(widen_e5m2),
                                             make_codes(widen_e8m0),
                                             make_codes(widen_e2m1)};
  return codes.at(static_cast<std::size_t>(type) - static_cast<std::size_t>(ElementType::kE4M3));
}

constexpr auto kCast = [](auto element) { return static_cast<double>(element); };

}  // namespace

std::size_t element_size(ElementType type) {
  return static_cast<std::size_t>(info(type).bits) / 8;
}

std::string_view name_of(ElementType type) {
  return info(type).name;
}

ElementType parse_element_type(std::string_view name) {
  const auto* const found = std::ranges::find(kTypes, name, &TypeInfo::name);
  TTRACE_CHECK(found != kTypes.end(),
               FormatError,
               "\"",
               name,
               "\" is not an element type; write f64, f32, f16, bf16, i64, i32, u8, bool, e4m3, "
               "e5m2, e8m0 or e2m1");
  return found->type;
}

bool is_floating(ElementType type) {
  return info(type).format.bits > 0;
}

const FloatFormat& format_of(ElementType type) {
  const FloatFormat& format = info(type).format;
  TTRACE_CHECK(format.bits > 0, InternalError, name_of(type), " is no floating type");
  return format;
}

double rounding_error(ElementType type) {
  return info(type).format.rounding;
}

void to_double(ElementType type, const void* source, std::int64_t count, double* target) {
  switch (type) {
    case ElementType::kF64:
      return widen<double>(source, count, target, kCast);
    case ElementType::kF32:
      return widen<float>(source, count, target, kCast);
    case ElementType::kF16:
      return widen<std::uint16_t>(
          source, count, target, [](std::uint16_t bits) { return widen_half(bits); });
    case ElementType::kBF16:
      return widen<std::uint16_t>(
          source, count, target, [](std::uint16_t bits) { return widen_brain(bits); });
    case ElementType::kI64:
      return widen<std::int64_t>(source, count, target, kCast);
    case ElementType::kI32:
      return widen<std::int32_t>(source, count, target, kCast);
    case ElementType::kU8:
      return widen<std::uint8_t>(source, count, target, kCast);
    case ElementType::kBool:
      return widen<std::uint8_t>(
          source, count, target, [](std::uint8_t value) { return value != 0 ? 1.0 : 0.0; });
    case ElementType::kE4M3:
    case ElementType::kE5M2:
    case ElementType::kE8M0:
    case ElementType::kE2M1:
      return widen<std::uint8_t>(
          source, count, target, [&codes = codes_of(type)](std::uint8_t code) {
            return codes[code];
          });
  }
}

void from_double(ElementType type, const double* source, std::int64_t count, void* target) {
  switch (type) {
    case ElementType::kF64:
      return narrow<double>(source, count, target, kCast);
    case ElementType::kF32:
      return narrow<float>(
          source, count, target, [](double value) { return static_cast<float>(value); });
    case ElementType::kF16:
    case ElementType::kBF16:
      return narrow<std::uint16_t>(
          source, count, target, [&format = format_of(type)](double value) {
            return encode(format, value);
          });
    case ElementType::kI64:
      return narrow<std::int64_t>(source, count, target, round_to<std::int64_t>);
    case ElementType::kI32:
      return narrow<std::int32_t>(source, count, target, round_to<std::int32_t>);
    case ElementType::kU8:
      return narrow<std::uint8_t>(source, count, target, round_to<std::uint8_t>);
    case ElementType::kBool:
      return narrow<std::uint8_t>(source, count, target, [](double value) {
        return static_cast<std::uint8_t>(value != 0.0 ? 1 : 0);
      });
    case ElementType::kE4M3:
    case ElementType::kE5M2:
    case ElementType::kE2M1:
      return narrow<std::uint8_t>(source, count, target, [&format = format_of(type)](double value) {
        return encode_code(format, value);
      });
    case ElementType::kE8M0:
      return narrow<std::uint8_t>(source, count, target, encode_e8m0);
  }
}

}  // namespace ttrace
