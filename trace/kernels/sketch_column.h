// What one thread of a sketch's kernel adds up: packs of one column of packs, on the host and on a
// GPU.
//
// Products are rounded before they are added: compile with -ffp-contract=off or --fmad=false.
#pragma once

#include "trace/base/host_device.h"
#include "trace/base/widen.h"
#include "trace/kernels/grid.h"
#include "trace/kernels/sketch_grid.h"

#include <cstdint>
#include <cstring>

namespace ttrace {

// Changes the sign of a value where bit 31 of `sign` is set.
TTRACE_KERNEL float with_sign(float value, std::uint32_t sign) {
  return with_bits_of<float>(with_bits_of<std::uint32_t>(value) ^ (sign & 0x80000000U));
}
TTRACE_KERNEL double with_sign(double value, std::uint32_t sign) {
  return with_bits_of<double>(with_bits_of<std::uint64_t>(value) ^ std::uint64_t{sign & 0x80000000U}
                                                                       << 32U);
}

// sum + value^2. The square of an f32 that holds a smaller type is exact, so one rounding is as
// good as two.
TTRACE_KERNEL float plus_square(float sum, float value) {
#if defined(__CUDA_ARCH__)
  return __fmaf_rn(value, value, sum);
#else
  return sum + value * value;
#endif
}
TTRACE_KERNEL double plus_square(double sum, double value) {
  return sum + value * value;
}

// The elements of a pack. On a GPU they stay in the words in which they were loaded.
template <class Bits>
struct SketchPack {
  static constexpr int kBits = 8 * static_cast<int>(sizeof(Bits));
  static constexpr int kWords = kSketchPack * kBits / 32;
#if defined(__CUDA_ARCH__)
  std::uint32_t words[kWords];

  TTRACE_KERNEL Bits at(int i) const {
    if constexpr (kBits == 64) {
      return words[2 * i] | std::uint64_t{words[2 * i + 1]} << 32U;
    } else {
      return static_cast<Bits>(words[i * kBits / 32] >> static_cast<unsigned>(i * kBits % 32));
    }
  }
  TTRACE_KERNEL std::uint32_t word(int i) const {
    return words[i];
  }
  // Element by element, its own magnitude or the other's.
  template <class Format>
  TTRACE_KERNEL void keep_larger(const SketchPack& other) {
    if constexpr (kBits == 64) {
      for (int i = 0; i < kSketchPack; ++i) {
        const Bits magnitude = Format::magnitude(other.at(i));
        const Bits larger = at(i) > magnitude ? at(i) : magnitude;
        words[2 * i] = static_cast<std::uint32_t>(larger);
        words[2 * i + 1] = static_cast<std::uint32_t>(larger >> 32U);
      }
      return;
    }
    constexpr std::uint32_t kOnes = 0xffffffffU / (0xffffffffU >> (32 - kBits));
    constexpr auto kMagnitudes = static_cast<std::uint32_t>(Format::kSign - 1U) * kOnes;
    for (int i = 0; i < kWords; ++i) {
      const std::uint32_t magnitudes = other.words[i] & kMagnitudes;
      words[i] = kBits == 8    ? __vmaxu4(words[i], magnitudes)
                 : kBits == 16 ? __vmaxu2(words[i], magnitudes)
                               : (words[i] > magnitudes ? words[i] : magnitudes);
    }
  }
  template <bool kAtOnce>
  TTRACE_KERNEL void load(const unsigned char* place) {
    if constexpr (kAtOnce || kBits > 16) {
      load_elements<kWords>(place, kAtOnce, words);
    } else {
      Bits bits[kSketchPack];
      load_elements<kSketchPack>(place, false, bits);
      memcpy(words, bits, sizeof(words));
    }
  }
#else
  Bits bits[kSketchPack];

  TTRACE_KERNEL Bits at(int i) const {
    return bits[i];
  }
  TTRACE_KERNEL std::uint32_t word(int i) const {
    std::uint32_t words[kWords];
    memcpy(words, bits, sizeof(words));
    return words[i];
  }
  template <class Format>
  TTRACE_KERNEL void keep_larger(const SketchPack& other) {
    for (int i = 0; i < kSketchPack; ++i) {
      const Bits magnitude = Format::magnitude(other.bits[i]);
      bits[i] = bits[i] > magnitude ? bits[i] : magnitude;
    }
  }
  template <bool kAtOnce>
  TTRACE_KERNEL void load(const unsigned char* place) {
    load_elements<kSketchPack>(place, kAtOnce, bits);
  }
#endif
};

// Sums over packs of one column of packs, element by element. Absent elements have bits of zero,
// which change nothing.
template <class Format>
struct SketchColumn {
  using Bits = typename Format::Bits;
  using Value = typename Format::Value;

  Value signed_sums[kSketchPack];
  Value squares[kSketchPack];
  SketchPack<Bits> largest;  // magnitudes
  std::uint64_t low;
  std::uint64_t high;

  TTRACE_KERNEL void add(const SketchPack<Bits>& pack, std::uint32_t hash) {
    for (int i = 0; i < kSketchPack; ++i) {
      const Value value = Format::value(pack.at(i));
      signed_sums[i] += with_sign(value, hash << static_cast<unsigned>(i));
      squares[i] = plus_square(squares[i], value);
    }
    largest.template keep_larger<Format>(pack);
    add_digest(pack, hash);
  }

  // Linear in the elements' bits, so that the parts of a pack which different ranks hold add up. A
  // product of 32 bits by 32 fills 64, so no bit is lost.
  TTRACE_KERNEL void add_digest(const SketchPack<Bits>& pack, std::uint32_t hash) {
    for (int i = 0; i < SketchPack<Bits>::kWords; ++i) {
      const std::uint32_t key = hash + static_cast<std::uint32_t>(i) * 0x9e3779b9U;
      (i % 2 == 0 ? low : high) += std::uint64_t{pack.word(i)} * key;
    }
  }

  // Sums of the lanes of `values`, in the order in which vectors are folded.
  template <class Result>
  TTRACE_KERNEL static Result total(const Value (&values)[kSketchPack]) {
    const auto lane = [&](int i) { return static_cast<Result>(values[i]); };
    return ((lane(0) + lane(4)) + (lane(2) + lane(6))) +
           ((lane(1) + lane(5)) + (lane(3) + lane(7)));
  }

  // Whether all elements were finite and their squares near enough to 1 for f32.
  [[nodiscard]] TTRACE_KERNEL bool is_accurate() const {
    const std::uint64_t most = largest_of_all();
    return most == 0 || (most < Format::kLarge && most + 1 > Format::kSmall);
  }
  [[nodiscard]] TTRACE_KERNEL Bits largest_of_all() const {
    Bits most = largest.at(0);
    for (int i = 1; i < kSketchPack; ++i) {
      most = most > largest.at(i) ? most : largest.at(i);
    }
    return most;
  }
};

}  // namespace ttrace
