#include "hooks/nudge/perturbation.h"

#include "trace/base/instruction_set.h"
#include "trace/base/random.h"

#include <ttrace/error.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <utility>

namespace ttrace {
namespace {

// Elements whose random numbers are drawn at once.
constexpr std::int64_t kBlock = 1024;

// A hash is more than an element needs: its bytes are shared out.
template <class Random>
struct RandomBlock {
  [[gnu::always_inline]] void draw(std::uint32_t first, std::uint64_t key) {
    constexpr auto kWords = static_cast<std::uint32_t>(sizeof(Random) * kBlock / 4);
    const auto low = static_cast<std::uint32_t>(key);
    const auto high = static_cast<std::uint32_t>(key >> 32);
    std::array<std::uint32_t, kWords> words;
#pragma omp simd
    for (std::uint32_t i = 0; i < kWords; ++i) {
      words[i] = noise_hash(first * kWords + i, low, high);
    }
    std::memcpy(values.data(), words.data(), sizeof words);
  }

  std::array<Random, kBlock> values;
};

template <class Format, class Random>
[[gnu::always_inline]] inline void move_block(typename Format::Bits* values,
                                              std::uint32_t count,
                                              const RandomBlock<Random>& random) {
#pragma omp simd
  for (std::uint32_t i = 0; i < count; ++i) {
    values[i] = moved<Format>(values[i], random.values[i]);
  }
}

template <class Format, class Random>
[[gnu::always_inline]] inline void move_chunk(typename Format::Bits* values,
                                              std::int64_t count,
                                              std::uint64_t key) {
  RandomBlock<Random> random;
  for (std::int64_t first = 0; first < count; first += kBlock) {
    random.draw(static_cast<std::uint32_t>(first / kBlock), key);
    const auto size = static_cast<std::uint32_t>(std::min(kBlock, count - first));
    move_block<Format, Random>(values + first, size, random);
  }
}

template <class Format>
[[gnu::always_inline]] inline void move_all(bool reduction,
                                            std::uint64_t seed,
                                            std::int64_t count,
                                            void* values) {
  auto* elements = static_cast<typename Format::Bits*>(values);
  for (std::int64_t first = 0; first < count; first += kNoiseChunk) {
    const std::int64_t size = std::min(kNoiseChunk, count - first);
    const std::uint64_t key = noise_key(seed, first);
    if (reduction) {
      move_chunk<Format, std::uint16_t>(elements + first, size, key);
    } else {
      move_chunk<Format, std::uint8_t>(elements + first, size, key);
    }
  }
}

struct Elements {
  ElementType type;
  bool reduction;
  std::uint64_t seed;
  std::int64_t count;
  void* values;
};

[[gnu::always_inline]] inline void move_elements(const Elements& all) {
  switch (all.type) {
    case ElementType::kF64:
      return move_all<NoiseF64>(all.reduction, all.seed, all.count, all.values);
    case ElementType::kF32:
      return move_all<NoiseF32>(all.reduction, all.seed, all.count, all.values);
    case ElementType::kF16:
      return move_all<NoiseF16>(false, all.seed, all.count, all.values);
    case ElementType::kBF16:
      return move_all<NoiseBF16>(false, all.seed, all.count, all.values);
    case ElementType::kE4M3:
      return move_all<NoiseE4M3>(false, all.seed, all.count, all.values);
    case ElementType::kE5M2:
      return move_all<NoiseE5M2>(false, all.seed, all.count, all.values);
    case ElementType::kE8M0:
      return;
    default:
      TTRACE_THROW(InternalError, "noise is not defined for elements of type ", name_of(all.type));
  }
}

// The same moves in wider instructions: the baseline of x86-64 has no product of 32-bit integers.
TTRACE_AVX512 void move_avx512(const Elements& all) {
  move_elements(all);
}
TTRACE_AVX2 void move_avx2(const Elements& all) {
  move_elements(all);
}
void move_baseline(const Elements& all) {
  move_elements(all);
}

}  // namespace

void perturb(
    ElementType type, NoiseClass noise, std::uint64_t seed, std::int64_t count, void* values) {
  if (noise == NoiseClass::kNone) {
    return;
  }
  static auto* const move = fastest(move_baseline, move_avx2, move_avx512);
  move({type, noise == NoiseClass::kReduction, seed, count, values});
}

std::vector<std::int64_t> sample_order(std::int64_t samples, std::uint64_t seed) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(samples));
  std::iota(order.begin(), order.end(), 0);
  std::uint64_t counter = 0;
  while (samples > 1 && std::is_sorted(order.begin(), order.end())) {
    for (std::size_t i = order.size() - 1; i > 0; --i) {
      std::swap(order[i], order[random_bits(seed, counter++) % (i + 1)]);
    }
  }
  return order;
}

}  // namespace ttrace
