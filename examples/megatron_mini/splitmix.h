// Integers that look random, from integers.
//
// Source: the finalizer of Steele, Lea and Flood, "Fast splittable pseudorandom number generators"
// (2014), with the constants of variant 13.
//
// Thread-safety: pure functions.
#pragma once

#include <cstdint>

namespace megatron_mini {

inline constexpr std::uint64_t kGolden = 0x9E3779B97F4A7C15U;  // 2^64 / golden ratio

[[nodiscard]] inline std::uint64_t splitmix64(std::uint64_t state) {
  std::uint64_t z = state + kGolden;
  z = (z ^ (z >> 30U)) * 0xBF58476D1CE4E5B9U;
  z = (z ^ (z >> 27U)) * 0x94D049BB133111EBU;
  return z ^ (z >> 31U);
}

}  // namespace megatron_mini
