#include "trace/file/value_figures.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace ttrace {
namespace {

constexpr std::size_t kBlock = 1024;

struct BlockFigures {
  double squares = 0.0;
  double max_abs = 0.0;
  std::uint64_t nonfinite = 0;
};

// Element i of a block goes to lane i % kLanes. A tile is the lanes whose doubles fill one register
// of kRegister bytes; lanes are independent of each other, so their number in a tile changes no
// bit.
constexpr std::size_t kLanes = 16;
template <class Element, std::size_t kRegister>
struct TileOf {
  using Type [[gnu::vector_size(kRegister / sizeof(double) * sizeof(Element))]] = Element;
};
template <class Element, std::size_t kRegister>
using Tile = typename TileOf<Element, kRegister>::Type;

template <std::size_t kRegister>
struct F32 {
  using Word = std::int32_t;
  [[gnu::always_inline]] static inline Tile<std::int32_t, kRegister> widened(
      const Tile<Word, kRegister>& words) {
    return words;
  }
};
template <std::size_t kRegister>
struct Bf16 {
  using Word = std::uint16_t;
  [[gnu::always_inline]] static inline Tile<std::int32_t, kRegister> widened(
      const Tile<Word, kRegister>& words) {
    return __builtin_convertvector(words, Tile<std::int32_t, kRegister>) << 16;
  }
};

// Sum of squares and largest magnitude of kBlock elements at any address. With NaN or Inf among
// them the sum is not finite and the rest is meaningless. Magnitudes are compared as integers,
// whose order is theirs.
template <template <std::size_t> class Format, std::size_t kRegister>
[[gnu::always_inline]] inline BlockFigures summarize_lanes(const std::byte* source) {
  using Word = typename Format<kRegister>::Word;
  constexpr std::size_t kWidth = kRegister / sizeof(double);
  constexpr std::size_t kTiles = kLanes / kWidth;
  constexpr std::int32_t kWithoutSign = 0x7FFF'FFFF;
  Tile<double, kRegister> squares[kTiles] = {};        // NOLINT: an array of registers
  Tile<std::int32_t, kRegister> largest[kTiles] = {};  // NOLINT
  for (std::size_t first = 0; first < kBlock; first += kLanes) {
    for (std::size_t tile = 0; tile < kTiles; ++tile) {
      Tile<Word, kRegister> words;
      std::memcpy(&words, source + (first + tile * kWidth) * sizeof(Word), sizeof words);
      const Tile<std::int32_t, kRegister> magnitudes =
          Format<kRegister>::widened(words) & kWithoutSign;
      Tile<float, kRegister> singles;
      std::memcpy(&singles, &magnitudes, sizeof singles);
      const auto doubles = __builtin_convertvector(singles, Tile<double, kRegister>);
      squares[tile] += doubles * doubles;
      largest[tile] = magnitudes > largest[tile] ? magnitudes : largest[tile];
    }
  }
  BlockFigures figures;
  std::int32_t largest_bits = 0;
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    figures.squares += squares[lane / kWidth][lane % kWidth];
    largest_bits = std::max<std::int32_t>(largest_bits, largest[lane / kWidth][lane % kWidth]);
  }
  figures.max_abs = std::bit_cast<float>(largest_bits);
  return figures;
}

template <template <std::size_t> class Format>
BlockFigures in_baseline(const std::byte* source) {
  return summarize_lanes<Format, 16>(source);
}
template <template <std::size_t> class Format>
TTRACE_AVX2 BlockFigures in_avx2(const std::byte* source) {
  return summarize_lanes<Format, 32>(source);
}
template <template <std::size_t> class Format>
TTRACE_AVX512 BlockFigures in_avx512(const std::byte* source) {
  return summarize_lanes<Format, 64>(source);
}

using Whole = BlockFigures(const std::byte*);

template <template <std::size_t> class Format>
Whole* function_of(InstructionSet set) {
  return fastest<Whole>(in_baseline<Format>, in_avx2<Format>, in_avx512<Format>, set);
}

// For whole blocks of the two usual types; null for the others.
Whole* function_of(ElementType type, InstructionSet set) {
  return type == ElementType::kF32    ? function_of<F32>(set)
         : type == ElementType::kBF16 ? function_of<Bf16>(set)
                                      : nullptr;
}

// `length` elements, at most kBlock.
BlockFigures summarize_any(ElementType type, const std::byte* source, std::size_t length) {
  std::array<double, kBlock> values = {};
  to_double(type, source, static_cast<std::int64_t>(length), values.data());
  BlockFigures figures;
  for (const double value : values) {
    if (std::isfinite(value)) {
      figures.squares += value * value;
      figures.max_abs = std::max(figures.max_abs, std::fabs(value));
    } else {
      ++figures.nonfinite;
    }
  }
  return figures;
}

}  // namespace

ValueFigures figures_of(ElementType type, std::span<const std::byte> bytes, InstructionSet set) {
  const std::size_t size = element_size(type);
  const std::size_t count = bytes.size() / size;
  Whole* const whole = function_of(type, set);
  ValueFigures figures;
  double squares = 0.0;
  for (std::size_t first = 0; first < count; first += kBlock) {
    const std::byte* const source = bytes.data() + first * size;
    const std::size_t length = std::min(kBlock, count - first);
    BlockFigures part{.squares = std::numeric_limits<double>::infinity()};
    if (whole != nullptr && length == kBlock) {
      part = whole(source);
    }
    if (!std::isfinite(part.squares)) {
      part = summarize_any(type, source, length);
    }
    squares += part.squares;
    figures.max_abs = std::max(figures.max_abs, part.max_abs);
    figures.nonfinite += part.nonfinite;
  }
  figures.norm = std::sqrt(squares);
  return figures;
}

}  // namespace ttrace
