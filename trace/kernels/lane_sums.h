// The sums over one block of a pair of tensors, lane by lane: arithmetic that compare() and a GPU
// have in common.
//
// A block of kSumBlock elements is summed in kSumLanes interleaved lanes, of which lane i takes the
// words i, i + kSumLanes, and so on; a word is as wide as the lane's numbers, or holds several
// elements. Sums are kept in the lanes' own type over a stretch and are then added to doubles. In
// the end the lanes are added in their order. Everything here works on one lane (numbers) or on
// several side by side (the compiler's vectors): lanes are independent, so that changes no bit.
//
// Products are rounded before they are added: compile with -ffp-contract=off or --fmad=false.
#pragma once

#include "trace/base/host_device.h"
#include "trace/base/widen.h"

#include <cmath>
#include <cstdint>
#include <type_traits>

namespace ttrace {

inline constexpr int kSumBlock = 1024;
inline constexpr int kSumLanes = 16;
// Elements: 16 additions per lane, so that a sum of f32 squares is off by 1e-6 at worst.
inline constexpr int kSumStretch = 256;

// One lane. Another such class names vectors of lanes.
struct OneLane {
  template <class T>
  using Of = T;
};

template <class To, class From>
TTRACE_KERNEL To lanes_as(From from) {
#if defined(__CUDACC__)
  return static_cast<To>(from);
#else
  if constexpr (std::is_arithmetic_v<From>) {
    return static_cast<To>(from);
  } else {
    return __builtin_convertvector(from, To);
  }
#endif
}

// A comparison of vectors is -1 where it holds; make that of numbers the same.
TTRACE_KERNEL std::int32_t as_mask(bool holds) {
  return -static_cast<std::int32_t>(holds);
}
template <class Vector>
TTRACE_KERNEL Vector as_mask(Vector holds) {
  return holds;
}

// Reads the elements of a type, one or several words at a time, with kPerWord elements each. `get`
// returns one element of every word.
template <class Lanes, class Number>
struct PlainSource {  // the elements are the lanes' own numbers
  using Value = Number;
  using Word = Number;
  using Words = typename Lanes::template Of<Number>;
  static constexpr int kPerWord = 1;
  template <int kPart>
  TTRACE_KERNEL static Words get(Words words) {
    return words;
  }
};

template <class Lanes>
struct WordSource {
  using Value = float;
  using Word = std::uint32_t;
  using Floats = typename Lanes::template Of<float>;
  using Words = typename Lanes::template Of<std::uint32_t>;
  using SignedWords = typename Lanes::template Of<std::int32_t>;

  template <class Mask>
  TTRACE_KERNEL static Words mask(Mask holds) {
    return with_bits_of<Words>(as_mask(holds));
  }
};

// Widening is one shift for the first and one mask for the second.
template <class Lanes>
struct Bfloat16Source : WordSource<Lanes> {
  using typename WordSource<Lanes>::Floats;
  using typename WordSource<Lanes>::Words;
  static constexpr int kPerWord = 2;
  template <int kPart>
  TTRACE_KERNEL static Floats get(Words words) {
    return with_bits_of<Floats>(kPart == 0 ? words << 16U : words & 0xffff0000U);
  }
};

// Uses integers and one exact subtraction, so it needs no instruction set, and a processor that
// flushes subnormal numbers changes nothing.
template <class Lanes>
struct HalfSource : WordSource<Lanes> {
  using typename WordSource<Lanes>::Floats;
  using typename WordSource<Lanes>::Words;
  using WordSource<Lanes>::mask;
  static constexpr int kPerWord = 2;
  template <int kPart>
  TTRACE_KERNEL static Floats get(Words words) {
    constexpr std::uint32_t kRebias = (127U - 15U) << 23U;
    constexpr std::uint32_t kSmallest = 113U << 23U;  // 2^-14, the smallest normal number
    const Words half = kPart == 0 ? words << 16U : words & 0xffff0000U;
    const Words magnitude = (half & 0x7fff0000U) >> 3U;
    const Words exponent = magnitude & 0x0f800000U;
    // An exponent of ones stays all ones: NaN and Inf.
    const Words normal = magnitude + kRebias + (mask(exponent == 0x0f800000U) & kRebias);
    // If the exponent is zero, the mantissa counts steps below 2^-14: add 2^-14, then subtract it.
    const Floats subnormal = with_bits_of<Floats>(magnitude + kSmallest) - 0x1p-14F;
    const Words is_subnormal = mask(exponent == 0U);
    return with_bits_of<Floats>((half & 0x80000000U) | (normal & ~is_subnormal) |
                                (with_bits_of<Words>(subnormal) & is_subnormal));
  }
};

// f32 holds all sums of a stretch exactly: 16 squares of at most 255.
template <class Lanes, bool kIsBool>
struct ByteSource : WordSource<Lanes> {
  using typename WordSource<Lanes>::Floats;
  using typename WordSource<Lanes>::Words;
  using typename WordSource<Lanes>::SignedWords;
  using WordSource<Lanes>::mask;
  static constexpr int kPerWord = 4;
  template <int kPart>
  TTRACE_KERNEL static Floats get(Words words) {
    const Words byte = words >> (8U * kPart) & 0xffU;
    Words value = byte;
    if constexpr (kIsBool) {
      value = mask(byte != 0U) & 1U;
    }
    return lanes_as<Floats>(with_bits_of<SignedWords>(value));
  }
};

template <class Lanes, class Integer>
struct IntegerSource {
  using Value = double;
  using Doubles = typename Lanes::template Of<double>;
  using Word = Integer;
  using Words = typename Lanes::template Of<Integer>;
  static constexpr int kPerWord = 1;
  template <int kPart>
  TTRACE_KERNEL static Doubles get(Words words) {
    return lanes_as<Doubles>(words);
  }
};

// Of the reference r, the candidate c, and d = c - r.
template <class Lane>
struct LaneSums {
  Lane reference_squared;
  Lane candidate_squared;
  Lane product;
  Lane difference_squared;
  Lane difference;
};

// Largest squares instead of largest magnitudes: the root of a rounded square is the magnitude
// again (in base 2, short of overflow and underflow), and the squares are there anyway.
template <class Lane>
struct LaneExtremes {
  using Mask = decltype(as_mask(Lane{} != Lane{}));
  Lane difference_squared;
  Lane reference_squared;
  Mask different;  // minus the number of different elements
};

template <class Lane>
TTRACE_KERNEL void add_pair(Lane reference,
                            Lane candidate,
                            LaneSums<Lane>& sums,
                            LaneExtremes<Lane>& extremes) {
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
  extremes.different += as_mask(reference != candidate);
}

// The elements of a word of every lane, in their order.
template <class Source, class Lane>
TTRACE_KERNEL void add_words(typename Source::Words r,
                             typename Source::Words c,
                             LaneSums<Lane>& sums,
                             LaneExtremes<Lane>& extremes) {
  add_pair<Lane>(Source::template get<0>(r), Source::template get<0>(c), sums, extremes);
  if constexpr (Source::kPerWord > 1) {
    add_pair<Lane>(Source::template get<1>(r), Source::template get<1>(c), sums, extremes);
  }
  if constexpr (Source::kPerWord > 2) {
    add_pair<Lane>(Source::template get<2>(r), Source::template get<2>(c), sums, extremes);
    add_pair<Lane>(Source::template get<3>(r), Source::template get<3>(c), sums, extremes);
  }
}

// A stretch is over.
template <class From, class To>
TTRACE_KERNEL void flush(const LaneSums<From>& from, LaneSums<To>& to) {
  to.reference_squared += lanes_as<To>(from.reference_squared);
  to.candidate_squared += lanes_as<To>(from.candidate_squared);
  to.product += lanes_as<To>(from.product);
  to.difference_squared += lanes_as<To>(from.difference_squared);
  to.difference += lanes_as<To>(from.difference);
}

// One block's figures. NaN and Inf are in the sums: the caller looks at them and does such a block
// again with care.
struct BlockFigures {
  LaneSums<double> sums;
  double max_difference;  // maxima leave NaN out
  double max_reference;
  std::int64_t different;
};

// Adds up the lanes of a block, one call for each in their order.
template <class Value>
struct LaneJoin {
  BlockFigures figures;
  Value difference_squared;  // largest
  Value reference_squared;

  TTRACE_KERNEL void add(const LaneSums<double>& lane,
                         Value lane_difference_squared,
                         Value lane_reference_squared,
                         std::int64_t different) {
    flush(lane, figures.sums);
    difference_squared =
        difference_squared < lane_difference_squared ? lane_difference_squared : difference_squared;
    reference_squared =
        reference_squared < lane_reference_squared ? lane_reference_squared : reference_squared;
    figures.different += different;
  }

  TTRACE_KERNEL BlockFigures result() const {
    BlockFigures result = figures;
    // Rounded to the lanes' own type, in which the square was.
    result.max_difference =
        static_cast<double>(static_cast<Value>(sqrt(static_cast<double>(difference_squared))));
    result.max_reference =
        static_cast<double>(static_cast<Value>(sqrt(static_cast<double>(reference_squared))));
    return result;
  }
};

}  // namespace ttrace
