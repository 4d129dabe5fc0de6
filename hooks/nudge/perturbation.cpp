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

// Elements that share one key: 32-bit counters suffice and vectorise.
constexpr std::int64_t kChunk = std::int64_t{1} << 20;
// Elements whose random numbers are drawn at once.
constexpr std::int64_t kBlock = 1024;

// A 32-bit finaliser of two multiplications keyed at both ends.
inline std::uint32_t hash(std::uint32_t counter, std::uint32_t low, std::uint32_t high) {
  std::uint32_t x = counter ^ low;
  x = (x ^ (x >> 16)) * 0x7feb352dU;
  x += high;
  x = (x ^ (x >> 15)) * 0x846ca68bU;
  return x ^ (x >> 16);
}

// Moves an element by the random bits of an integer of this type.
template <class Random>
struct Move;

// +1 and -1 with probability 1/8 each, else 0.
template <>
struct Move<std::uint8_t> {
  template <class Signed>
  [[gnu::always_inline]] static Signed of(std::uint8_t random) {
    const auto bits = static_cast<Signed>(random >> 5);
    return static_cast<Signed>((bits == 0) - (bits == 1));
  }
};

// Uniform in [-kReductionUlps, kReductionUlps].
template <>
struct Move<std::uint16_t> {
  template <class Signed>
  [[gnu::always_inline]] static Signed of(std::uint16_t random) {
    constexpr std::uint32_t kValues = 2 * kReductionUlps + 1;
    return static_cast<Signed>(static_cast<std::int32_t>((random * kValues) >> 16) -
                               kReductionUlps);
  }
};

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
      words[i] = hash(first * kWords + i, low, high);
    }
    std::memcpy(values.data(), words.data(), sizeof words);
  }

  std::array<Random, kBlock> values;
};

// A floating format's magnitudes, read as integers, are ordered, and neighbours differ by one unit
// of the last place: moving a value is integer arithmetic below the sign bit.
template <class Bits, class Signed, Bits infinity, class Random>
[[gnu::always_inline]] inline void move_block(Bits* values,
                                              std::uint32_t count,
                                              const RandomBlock<Random>& random) {
  constexpr Bits kSign = static_cast<Bits>(Bits{1} << (sizeof(Bits) * 8 - 1));
#pragma omp simd
  for (std::uint32_t i = 0; i < count; ++i) {
    const Signed move = Move<Random>::template of<Signed>(random.values[i]);
    const Bits magnitude = static_cast<Bits>(values[i] & static_cast<Bits>(~kSign));
    const Bits moved = static_cast<Bits>(magnitude + static_cast<Bits>(move));
    // Written with unsigned wrap-around: 1 <= x < infinity. A move below zero wraps far above.
    const bool valid = static_cast<Bits>(magnitude - 1) < static_cast<Bits>(infinity - 1) &&
                       static_cast<Bits>(moved - 1) < static_cast<Bits>(infinity - 1);
    values[i] = static_cast<Bits>((values[i] & kSign) | (valid ? moved : magnitude));
  }
}

template <class Bits, class Signed, Bits infinity, class Random>
[[gnu::always_inline]] inline void move_chunk(Bits* values, std::int64_t count, std::uint64_t key) {
  RandomBlock<Random> random;
  for (std::int64_t first = 0; first < count; first += kBlock) {
    random.draw(static_cast<std::uint32_t>(first / kBlock), key);
    const auto size = static_cast<std::uint32_t>(std::min(kBlock, count - first));
    move_block<Bits, Signed, infinity, Random>(values + first, size, random);
  }
}

template <class Bits, class Signed, Bits infinity>
[[gnu::always_inline]] inline void move_all(bool reduction,
                                            std::uint64_t seed,
                                            std::int64_t count,
                                            void* values) {
  auto* elements = static_cast<Bits*>(values);
  for (std::int64_t first = 0; first < count; first += kChunk) {
    const std::int64_t size = std::min(kChunk, count - first);
    const std::uint64_t key = random_bits(seed, static_cast<std::uint64_t>(first / kChunk));
    if (reduction) {
      move_chunk<Bits, Signed, infinity, std::uint16_t>(elements + first, size, key);
    } else {
      move_chunk<Bits, Signed, infinity, std::uint8_t>(elements + first, size, key);
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
      return move_all<std::uint64_t, std::int64_t, 0x7ff0000000000000ULL>(
          all.reduction, all.seed, all.count, all.values);
    case ElementType::kF32:
      return move_all<std::uint32_t, std::int32_t, 0x7f800000U>(
          all.reduction, all.seed, all.count, all.values);
    case ElementType::kF16:
      return move_all<std::uint16_t, std::int16_t, 0x7c00U>(false, all.seed, all.count, all.values);
    case ElementType::kBF16:
      return move_all<std::uint16_t, std::int16_t, 0x7f80U>(false, all.seed, all.count, all.values);
    case ElementType::kE4M3:  // has no infinity; the code above the largest number is NaN
      return move_all<std::uint8_t, std::int8_t, 0x7fU>(false, all.seed, all.count, all.values);
    case ElementType::kE5M2:
      return move_all<std::uint8_t, std::int8_t, 0x7cU>(false, all.seed, all.count, all.values);
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
