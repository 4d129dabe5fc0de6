#include "trace/sums/statistics_kernel.h"

#include "trace/base/instruction_set.h"

#include <cstddef>
#include <cstdint>

namespace ttrace {
namespace {

// Every block is summed in this many interleaved lanes, whatever the width of a vector register.
constexpr std::size_t kLanes = 16;
// Elements whose sums are kept in the lanes' own type before they are flushed to double: 16
// additions per lane, so that a sum of f32 squares is off by 1e-6 at worst.
constexpr std::size_t kStretch = 256;

// A register's worth of lanes is summed at a time (a tile), so that the accumulators stay in
// registers; lanes are independent of each other, so their number in a tile changes no bit.
template <class Value, std::size_t kRegister>
constexpr std::size_t kTile = kRegister / sizeof(Value);

template <class Element, std::size_t kCount>
struct VectorOf {
  using Type [[gnu::vector_size(sizeof(Element) * kCount)]] = Element;
};
template <class Element, std::size_t kCount>
using Vector = typename VectorOf<Element, kCount>::Type;

// Reads the elements of a type, a tile of words at a time, with kPerWord elements each. `get`
// returns one element of every word. kRegister is the width of a register in bytes.
template <std::size_t kRegister>
struct DoubleSource {
  using Value = double;
  using Word = double;
  using Words = Vector<double, kTile<double, kRegister>>;
  static constexpr int kPerWord = 1;
  template <int kPart>
  [[gnu::always_inline]] static Words get(Words words) {
    return words;
  }
};

template <std::size_t kRegister>
struct FloatSource {
  using Value = float;
  using Word = float;
  using Words = Vector<float, kTile<float, kRegister>>;
  static constexpr int kPerWord = 1;
  template <int kPart>
  [[gnu::always_inline]] static Words get(Words words) {
    return words;
  }
};

// A tile of 32-bit words, and the ways to look at it.
template <std::size_t kRegister>
struct Tile {
  using Floats = Vector<float, kTile<float, kRegister>>;
  using Bits = Vector<std::uint32_t, kTile<float, kRegister>>;
  using SignedBits = Vector<std::int32_t, kTile<float, kRegister>>;

  [[gnu::always_inline]] static Floats as_floats(Bits bits) {
    return __builtin_bit_cast(Floats, bits);
  }
  [[gnu::always_inline]] static Bits as_bits(SignedBits mask) {
    return __builtin_bit_cast(Bits, mask);
  }
};

// Widening is one shift for the first and one mask for the second.
template <std::size_t kRegister>
struct Bfloat16Source : Tile<kRegister> {
  using typename Tile<kRegister>::Floats;
  using typename Tile<kRegister>::Bits;
  using Tile<kRegister>::as_floats;
  using Value = float;
  using Word = std::uint32_t;
  using Words = Bits;
  static constexpr int kPerWord = 2;
  template <int kPart>
  [[gnu::always_inline]] static Floats get(Words words) {
    return as_floats(kPart == 0 ? words << 16U : words & 0xffff0000U);
  }
};

// Uses integers and one exact subtraction, so it needs no instruction set, and a processor that
// flushes subnormal numbers changes nothing.
template <std::size_t kRegister>
struct HalfSource : Tile<kRegister> {
  using typename Tile<kRegister>::Floats;
  using typename Tile<kRegister>::Bits;
  using Tile<kRegister>::as_floats;
  using Tile<kRegister>::as_bits;
  using Value = float;
  using Word = std::uint32_t;
  using Words = Bits;
  static constexpr int kPerWord = 2;
  template <int kPart>
  [[gnu::always_inline]] static Floats get(Words words) {
    constexpr std::uint32_t kRebias = (127U - 15U) << 23U;
    constexpr std::uint32_t kSmallest = 113U << 23U;  // 2^-14, the smallest normal number
    const Words half = kPart == 0 ? words << 16U : words & 0xffff0000U;
    const Words magnitude = (half & 0x7fff0000U) >> 3U;
    const Words exponent = magnitude & 0x0f800000U;
    // An exponent of ones stays all ones: NaN and Inf.
    const Words normal = magnitude + kRebias + (as_bits(exponent == 0x0f800000U) & kRebias);
    // If the exponent is zero, the mantissa counts steps below 2^-14: add 2^-14, then subtract it.
    const Floats subnormal = as_floats(magnitude + kSmallest) - 0x1p-14F;
    const Words is_subnormal = as_bits(exponent == 0U);
    return as_floats((half & 0x80000000U) | (normal & ~is_subnormal) |
                     (__builtin_bit_cast(Words, subnormal) & is_subnormal));
  }
};

// f32 holds all sums of a stretch exactly: 16 squares of at most 255.
template <std::size_t kRegister, bool kIsBool>
struct ByteSource : Tile<kRegister> {
  using typename Tile<kRegister>::Floats;
  using typename Tile<kRegister>::Bits;
  using typename Tile<kRegister>::SignedBits;
  using Tile<kRegister>::as_bits;
  using Value = float;
  using Word = std::uint32_t;
  using Words = Bits;
  static constexpr int kPerWord = 4;
  template <int kPart>
  [[gnu::always_inline]] static Floats get(Words words) {
    const Words byte = words >> (8U * kPart) & 0xffU;
    const Words value = kIsBool ? as_bits(byte != 0U) & 1U : byte;
    return __builtin_convertvector(__builtin_bit_cast(SignedBits, value), Floats);
  }
};

template <std::size_t kRegister, class Integer>
struct IntegerSource {
  using Value = double;
  using Doubles = Vector<double, kTile<double, kRegister>>;
  using Word = Integer;
  using Words = Vector<Integer, kTile<double, kRegister>>;
  static constexpr int kPerWord = 1;
  template <int kPart>
  [[gnu::always_inline]] static Doubles get(Words words) {
    return __builtin_convertvector(words, Doubles);
  }
};

template <class Lane>
struct Sums {
  Lane reference_squared;
  Lane candidate_squared;
  Lane product;
  Lane difference_squared;
  Lane difference;
};

// Largest squares instead of largest magnitudes: the root of a rounded square is the magnitude
// again (in base 2, short of overflow and underflow), and the squares are there anyway.
template <class Lane>
struct Extremes {
  using Mask = decltype(Lane{} != Lane{});
  Lane difference_squared;
  Lane reference_squared;
  Mask different;  // minus the number of different elements
};

template <class Lane>
[[gnu::always_inline]] inline void add_pair(Lane reference,
                                            Lane candidate,
                                            Sums<Lane>& sums,
                                            Extremes<Lane>& extremes) {
  const Lane difference = candidate - reference;
  const Lane reference_squared = reference * reference;
  const Lane difference_squared = difference * difference;
  sums.reference_squared += reference_squared;
  sums.candidate_squared += candidate * candidate;
  sums.product += reference * candidate;
  sums.difference_squared += difference_squared;
  sums.difference += difference;
  // This form drops a NaN; the sums of squares show that there was one.
  extremes.difference_squared = extremes.difference_squared < difference_squared
                                    ? difference_squared
                                    : extremes.difference_squared;
  extremes.reference_squared = extremes.reference_squared < reference_squared
                                   ? reference_squared
                                   : extremes.reference_squared;
  extremes.different += reference != candidate;
}

// One stretch of one tile of lanes.
template <class Source, class Lane>
[[gnu::always_inline]] inline void sum_lanes(const unsigned char* reference,
                                             const unsigned char* candidate,
                                             Sums<Lane>& result,
                                             Extremes<Lane>& extremes) {
  constexpr std::size_t kRowBytes = kLanes * sizeof(typename Source::Word);
  Sums<Lane> sums{};
  Extremes<Lane> largest = extremes;
  for (std::size_t row = 0; row < kStretch / Source::kPerWord / kLanes; ++row) {
    typename Source::Words r;
    typename Source::Words c;
    __builtin_memcpy(&r, reference + row * kRowBytes, sizeof r);
    __builtin_memcpy(&c, candidate + row * kRowBytes, sizeof c);
    add_pair<Lane>(Source::template get<0>(r), Source::template get<0>(c), sums, largest);
    if constexpr (Source::kPerWord > 1) {
      add_pair<Lane>(Source::template get<1>(r), Source::template get<1>(c), sums, largest);
    }
    if constexpr (Source::kPerWord > 2) {
      add_pair<Lane>(Source::template get<2>(r), Source::template get<2>(c), sums, largest);
      add_pair<Lane>(Source::template get<3>(r), Source::template get<3>(c), sums, largest);
    }
  }
  result = sums;
  extremes = largest;
}

template <class From, class To>
[[gnu::always_inline]] inline void flush(const Sums<From>& from, Sums<To>& to) {
  to.reference_squared += __builtin_convertvector(from.reference_squared, To);
  to.candidate_squared += __builtin_convertvector(from.candidate_squared, To);
  to.product += __builtin_convertvector(from.product, To);
  to.difference_squared += __builtin_convertvector(from.difference_squared, To);
  to.difference += __builtin_convertvector(from.difference, To);
}

template <class Set, class Source>
[[gnu::always_inline]] inline BlockFigures sum_in(const void* reference, const void* candidate) {
  using Value = typename Source::Value;
  constexpr std::size_t kCount = kTile<Value, Set::kRegister>;
  constexpr std::size_t kWordBytes = sizeof(typename Source::Word);
  constexpr std::size_t kStretchBytes = kStretch / Source::kPerWord * kWordBytes;
  const auto* const r = static_cast<const unsigned char*>(reference);
  const auto* const c = static_cast<const unsigned char*>(candidate);
  BlockFigures block{};
  Value largest_difference = 0;
  Value largest_reference = 0;
  for (std::size_t tile = 0; tile < kLanes; tile += kCount) {
    Sums<Vector<double, kCount>> total{};
    Sums<Vector<Value, kCount>> sums;
    Extremes<Vector<Value, kCount>> extremes{};
    for (std::size_t stretch = 0; stretch < kKernelBlock / kStretch; ++stretch) {
      const std::size_t offset = stretch * kStretchBytes + tile * kWordBytes;
      Set::template sum_stretch<Source>(r + offset, c + offset, sums, extremes);
      flush(sums, total);
    }
    for (std::size_t lane = 0; lane < kCount; ++lane) {
      block.reference_squared += total.reference_squared[lane];
      block.candidate_squared += total.candidate_squared[lane];
      block.product += total.product[lane];
      block.difference_squared += total.difference_squared[lane];
      block.difference += total.difference[lane];
      const Value difference = extremes.difference_squared[lane];
      largest_difference = largest_difference < difference ? difference : largest_difference;
      const Value magnitude = extremes.reference_squared[lane];
      largest_reference = largest_reference < magnitude ? magnitude : largest_reference;
      block.different -= extremes.different[lane];
    }
  }
  // Rounded to the lanes' own type, in which the square was.
  block.max_difference = static_cast<Value>(__builtin_sqrt(largest_difference));
  block.max_reference = static_cast<Value>(__builtin_sqrt(largest_reference));
  return block;
}

// The instruction sets. sum_stretch() is a function of its own, so that nothing else competes for
// the registers of its loop.
struct Baseline {
  static constexpr std::size_t kRegister = 16;
  template <class Source, class Lane>
  [[gnu::noinline]] static void sum_stretch(const unsigned char* reference,
                                            const unsigned char* candidate,
                                            Sums<Lane>& result,
                                            Extremes<Lane>& extremes) {
    sum_lanes<Source>(reference, candidate, result, extremes);
  }
  template <class Source>
  static BlockFigures sum_block(const void* reference, const void* candidate) {
    return sum_in<Baseline, Source>(reference, candidate);
  }
};

struct Avx2 {
  static constexpr std::size_t kRegister = 32;
  template <class Source, class Lane>
  TTRACE_AVX2 [[gnu::noinline]] static void sum_stretch(const unsigned char* reference,
                                                        const unsigned char* candidate,
                                                        Sums<Lane>& result,
                                                        Extremes<Lane>& extremes) {
    sum_lanes<Source>(reference, candidate, result, extremes);
  }
  template <class Source>
  TTRACE_AVX2 static BlockFigures sum_block(const void* reference, const void* candidate) {
    return sum_in<Avx2, Source>(reference, candidate);
  }
};

struct Avx512 {
  static constexpr std::size_t kRegister = 64;
  template <class Source, class Lane>
  TTRACE_AVX512 [[gnu::noinline]] static void sum_stretch(const unsigned char* reference,
                                                          const unsigned char* candidate,
                                                          Sums<Lane>& result,
                                                          Extremes<Lane>& extremes) {
    sum_lanes<Source>(reference, candidate, result, extremes);
  }
  template <class Source>
  TTRACE_AVX512 static BlockFigures sum_block(const void* reference, const void* candidate) {
    return sum_in<Avx512, Source>(reference, candidate);
  }
};

// The kernels in the order of the element types' numbers.
template <class Set, std::size_t kRegister = Set::kRegister>
constexpr StatisticsKernel kernel(const char* name) {
  return {name,
          {Set::template sum_block<DoubleSource<kRegister>>,
           Set::template sum_block<FloatSource<kRegister>>,
           Set::template sum_block<HalfSource<kRegister>>,
           Set::template sum_block<Bfloat16Source<kRegister>>,
           Set::template sum_block<IntegerSource<kRegister, std::int64_t>>,
           Set::template sum_block<IntegerSource<kRegister, std::int32_t>>,
           Set::template sum_block<ByteSource<kRegister, false>>,
           Set::template sum_block<ByteSource<kRegister, true>>}};
}

}  // namespace

constinit const StatisticsKernel kBaselineKernel = kernel<Baseline>("Baseline");
constinit const StatisticsKernel kAvx2Kernel = kernel<Avx2>("Avx2");
constinit const StatisticsKernel kAvx512Kernel = kernel<Avx512>("Avx512");

}  // namespace ttrace
