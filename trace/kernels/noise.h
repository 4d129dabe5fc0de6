// The move that a noise pass gives one element, on the host and on a GPU.
//
// Random numbers are a counter-based hash, keyed by the seed and the element's chunk of 2^20
// elements. A hash has four elements' numbers (one byte each) or those of two (16 bits each), in
// the order of the elements.
#pragma once

#include "trace/base/host_device.h"
#include "trace/base/random.h"
#include "trace/kernels/grid.h"

#include <ttrace/element_type.h>

#include <cstdint>

namespace ttrace {

enum class NoiseClass : std::uint8_t {
  kNone,       // the operator does not round
  kRounding,   // one rounding per element
  kReduction,  // a sum over many elements: in F32 and F64 its order matters more than its rounding
};

// Largest move of a reduction's element, in units of the last place.
inline constexpr int kReductionUlps = 6;

// Elements that share one key: 32-bit counters suffice and vectorise.
inline constexpr std::int64_t kNoiseChunk = std::int64_t{1} << 20;

TTRACE_KERNEL std::uint64_t noise_key(std::uint64_t seed, std::int64_t element) {
  return random_bits(seed, static_cast<std::uint64_t>(element / kNoiseChunk));
}

// A 32-bit finaliser of two multiplications keyed at both ends.
TTRACE_KERNEL std::uint32_t noise_hash(std::uint32_t counter,
                                       std::uint32_t low,
                                       std::uint32_t high) {
  std::uint32_t x = counter ^ low;
  x = (x ^ (x >> 16U)) * 0x7feb352dU;
  x += high;
  x = (x ^ (x >> 15U)) * 0x846ca68bU;
  return x ^ (x >> 16U);
}

// Moves an element by the random bits of an integer of this type.
template <class Random>
struct NoiseMove;

// +1 and -1 with probability 1/8 each, else 0.
template <>
struct NoiseMove<std::uint8_t> {
  template <class Signed>
  TTRACE_KERNEL static Signed of(std::uint8_t random) {
    const auto bits = static_cast<Signed>(random >> 5U);
    return static_cast<Signed>((bits == 0) - (bits == 1));
  }
};

// Uniform in [-kReductionUlps, kReductionUlps].
template <>
struct NoiseMove<std::uint16_t> {
  template <class Signed>
  TTRACE_KERNEL static Signed of(std::uint16_t random) {
    constexpr std::uint32_t kValues = 2 * kReductionUlps + 1;
    return static_cast<Signed>(static_cast<std::int32_t>((random * kValues) >> 16U) -
                               kReductionUlps);
  }
};

// What moves need to know of an element type.
template <class BitsType, class SignedType, BitsType infinity>
struct NoiseFormat {
  using Bits = BitsType;
  using Signed = SignedType;
  static constexpr Bits kInfinity = infinity;
};
using NoiseF64 = NoiseFormat<std::uint64_t, std::int64_t, 0x7ff0000000000000ULL>;
using NoiseF32 = NoiseFormat<std::uint32_t, std::int32_t, 0x7f800000U>;
using NoiseF16 = NoiseFormat<std::uint16_t, std::int16_t, 0x7c00U>;
using NoiseBF16 = NoiseFormat<std::uint16_t, std::int16_t, 0x7f80U>;
// Has no infinity; the code above the largest number is NaN.
using NoiseE4M3 = NoiseFormat<std::uint8_t, std::int8_t, 0x7fU>;
using NoiseE5M2 = NoiseFormat<std::uint8_t, std::int8_t, 0x7cU>;

// A floating format's magnitudes, read as integers, are ordered, and neighbours differ by one unit
// of the last place: moving a value is integer arithmetic below the sign bit. Zeros, infinities,
// NaN, and what would leave the finite range or reach zero stay as they are.
template <class Format, class Random>
TTRACE_KERNEL typename Format::Bits moved(typename Format::Bits value, Random random) {
  using Bits = typename Format::Bits;
  constexpr Bits kInfinity = Format::kInfinity;
  constexpr Bits kSign = static_cast<Bits>(Bits{1} << (sizeof(Bits) * 8 - 1));
  const auto move = NoiseMove<Random>::template of<typename Format::Signed>(random);
  const Bits magnitude = static_cast<Bits>(value & static_cast<Bits>(~kSign));
  const Bits result = static_cast<Bits>(magnitude + static_cast<Bits>(move));
  // Written with unsigned wrap-around: 1 <= x < infinity. A move below zero wraps far above.
  const bool valid = static_cast<Bits>(magnitude - 1) < static_cast<Bits>(kInfinity - 1) &&
                     static_cast<Bits>(result - 1) < static_cast<Bits>(kInfinity - 1);
  return static_cast<Bits>((value & kSign) | (valid ? result : magnitude));
}

// Moves the elements of one pack, of which the first is number `first` of the tensor.
template <class Format, class Random, int kCount>
TTRACE_KERNEL void move_pack(std::uint64_t seed,
                             std::int64_t first,
                             typename Format::Bits (&pack)[kCount]) {
  constexpr int kPerWord = 4 / static_cast<int>(sizeof(Random));
  const std::uint64_t key = noise_key(seed, first);
  const auto low = static_cast<std::uint32_t>(key);
  const auto high = static_cast<std::uint32_t>(key >> 32U);
  const auto counter = static_cast<std::uint32_t>(first % kNoiseChunk);
  std::uint32_t word = 0;
  for (int i = 0; i < kCount; ++i) {
    const std::uint32_t number = counter + static_cast<std::uint32_t>(i);
    if (i % kPerWord == 0) {
      word = noise_hash(number / kPerWord, low, high);
    }
    const std::uint32_t shift = number % kPerWord * 8U * static_cast<std::uint32_t>(sizeof(Random));
    pack[i] = moved<Format>(pack[i], static_cast<Random>(word >> shift));
  }
}

// The kernel: moves `count` elements in place.
template <class Format, class Random>
TTRACE_HOST_DEVICE void perturb_elements(Grid grid,
                                         std::uint64_t seed,
                                         std::int64_t count,
                                         void* values) {
  using Bits = typename Format::Bits;
  constexpr int kPack = kPackBytes / static_cast<int>(sizeof(Bits));
  auto* const bytes = static_cast<unsigned char*>(values);
  const bool at_once = starts_pack(values);
  for (std::int64_t first = grid.first * kPack; first < count; first += grid.stride * kPack) {
    unsigned char* const place = bytes + first * std::int64_t{sizeof(Bits)};
    Bits pack[kPack] = {};
    if (count - first >= kPack) {
      load_elements<kPack>(place, at_once, pack);
      move_pack<Format, Random>(seed, first, pack);
      store_elements<kPack>(pack, at_once, place);
      continue;
    }
    const int size = static_cast<int>(count - first);
    for (int i = 0; i < size; ++i) {
      pack[i] = load_element<Bits>(place, i);
    }
    move_pack<Format, Random>(seed, first, pack);
    for (int i = 0; i < size; ++i) {
      store_elements<1>(&pack[i], false, place + i * std::int64_t{sizeof(Bits)});
    }
  }
}

// Calls `launch(Format, Random)` with what moves elements of this type. Does nothing where noise
// moves none of them: without a rounding, and for E8M0, which holds scales. Returns whether noise
// is defined for the type.
template <class Launch>
bool with_noise_of(ElementType type, NoiseClass noise, const Launch& launch) {
  const bool reduction = noise == NoiseClass::kReduction;
  const auto wide = [&](auto format) {
    reduction ? launch(format, std::uint16_t{}) : launch(format, std::uint8_t{});
  };
  if (noise == NoiseClass::kNone || type == ElementType::kE8M0) {
    return true;
  }
  switch (type) {
    case ElementType::kF64:
      wide(NoiseF64{});
      return true;
    case ElementType::kF32:
      wide(NoiseF32{});
      return true;
    case ElementType::kF16:
      launch(NoiseF16{}, std::uint8_t{});
      return true;
    case ElementType::kBF16:
      launch(NoiseBF16{}, std::uint8_t{});
      return true;
    case ElementType::kE4M3:
      launch(NoiseE4M3{}, std::uint8_t{});
      return true;
    case ElementType::kE5M2:
      launch(NoiseE5M2{}, std::uint8_t{});
      return true;
    default:
      return false;
  }
}

}  // namespace ttrace
