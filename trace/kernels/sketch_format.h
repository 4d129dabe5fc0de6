// The element types that have a sketch, as its kernel sees them.
#pragma once

#include "trace/base/host_device.h"
#include "trace/base/widen.h"

#include <ttrace/element_type.h>

#include <cstdint>

namespace ttrace {

// A floating type as the kernel sees it. Magnitudes from kOverflow on are not finite. Squares of
// f32 are exact enough where the largest magnitude lies in [kSmall, kLarge); f64 has no such limit.
template <class BitsType, class ValueType, std::uint64_t overflow>
struct SketchFormat {
  using Bits = BitsType;
  using Value = ValueType;
  static constexpr Bits kSign = static_cast<Bits>(Bits{1} << (8 * sizeof(Bits) - 1));
  static constexpr Bits kOverflow = static_cast<Bits>(overflow);
  static constexpr Bits kSmall = 0;
  static constexpr Bits kLarge = kOverflow;

  TTRACE_KERNEL static Bits magnitude(Bits bits) {
    return static_cast<Bits>(bits & static_cast<Bits>(~kSign));
  }
};

struct SketchF64 : SketchFormat<std::uint64_t, double, 0x7ff0000000000000U> {
  TTRACE_KERNEL static double value(std::uint64_t bits) { return with_bits_of<double>(bits); }
};

struct SketchF32 : SketchFormat<std::uint32_t, double, 0x7f800000U> {
  TTRACE_KERNEL static double value(std::uint32_t bits) {
    return static_cast<double>(with_bits_of<float>(bits));
  }
};

struct SketchBF16 : SketchFormat<std::uint16_t, float, 0x7f80U> {
  static constexpr std::uint16_t kSmall = (127U - 50U) << 7U;  // 2^-50
  static constexpr std::uint16_t kLarge = (127U + 50U) << 7U;
  TTRACE_KERNEL static float value(std::uint16_t bits) {
    return with_bits_of<float>(std::uint32_t{bits} << 16U);
  }
};

// A format with less exponent than f32, of `kBits` bits without the sign.
template <class BitsType, int kMantissa, int kBias, int kBits, std::uint64_t overflow>
struct SketchSmall : SketchFormat<BitsType, float, overflow> {
  static constexpr BitsType kSign = static_cast<BitsType>(1U << static_cast<unsigned>(kBits));
  TTRACE_KERNEL static BitsType magnitude(BitsType bits) {
    return static_cast<BitsType>(bits & (kSign - 1U));
  }
  // Without a branch, and without f32's own subnormal numbers, which a processor may flush.
  TTRACE_KERNEL static float value(BitsType bits) {
    constexpr unsigned kShift = 23 - kMantissa;
    constexpr std::uint32_t kRebias = (127U - kBias) << 23U;
    constexpr std::uint32_t kOne = 1U << 23U;
    const std::uint32_t scaled = std::uint32_t{magnitude(bits)} << kShift;
    const float normal = with_bits_of<float>(scaled + kRebias);
    // With an exponent of zero the mantissa counts steps below the smallest normal number.
    const float subnormal =
        with_bits_of<float>(scaled + kRebias + kOne) - with_bits_of<float>(kRebias + kOne);
    const std::uint32_t size = with_bits_of<std::uint32_t>(scaled < kOne ? subnormal : normal);
    return with_bits_of<float>(size | ((bits & kSign) != 0 ? 0x80000000U : 0U));
  }
};
using SketchF16 = SketchSmall<std::uint16_t, 10, 15, 15, 0x7c00U>;
using SketchE4M3 = SketchSmall<std::uint8_t, 3, 7, 7, 0x7fU>;
using SketchE5M2 = SketchSmall<std::uint8_t, 2, 15, 7, 0x7cU>;
using SketchE2M1 = SketchSmall<std::uint8_t, 1, 1, 3, 0x8U>;

// Calls `visit` with the format of an element type. Returns false for integers, kBool and E8M0,
// which have no sketch.
template <class Visit>
bool with_sketch_format(ElementType type, const Visit& visit) {
  switch (type) {
    case ElementType::kF64:
      visit(SketchF64{});
      return true;
    case ElementType::kF32:
      visit(SketchF32{});
      return true;
    case ElementType::kF16:
      visit(SketchF16{});
      return true;
    case ElementType::kBF16:
      visit(SketchBF16{});
      return true;
    case ElementType::kE4M3:
      visit(SketchE4M3{});
      return true;
    case ElementType::kE5M2:
      visit(SketchE5M2{});
      return true;
    case ElementType::kE2M1:
      visit(SketchE2M1{});
      return true;
    default:
      return false;
  }
}

}  // namespace ttrace
