// Random bits that are the same on every machine: splitmix64, whose numbers are found directly by
// their index.
//
// Thread-safety: free functions without shared state.
#pragma once

#include "trace/base/host_device.h"

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace ttrace {

// splitmix64's output function: a bijection in which every input bit moves every output bit.
[[nodiscard]] TTRACE_HOST_DEVICE constexpr std::uint64_t scramble(std::uint64_t bits) {
  bits = (bits ^ (bits >> 30U)) * 0xbf58476d1ce4e5b9U;
  bits = (bits ^ (bits >> 27U)) * 0x94d049bb133111ebU;
  return bits ^ (bits >> 31U);
}

// Number `index`, from 0, of the sequence that begins at `seed`.
[[nodiscard]] TTRACE_HOST_DEVICE constexpr std::uint64_t random_bits(std::uint64_t seed,
                                                                     std::uint64_t index = 0) {
  constexpr std::uint64_t kStep = 0x9e3779b97f4a7c15U;  // 2^64 / golden ratio
  return scramble(seed + (index + 1) * kStep);
}

// Brings the values into the order of `seed`, each order as likely as any other one.
template <class Value>
void shuffle(std::vector<Value>& values, std::uint64_t seed) {
  for (std::size_t i = values.size(); i > 1; --i) {
    std::swap(values[i - 1], values[random_bits(seed, i) % i]);
  }
}

}  // namespace ttrace
