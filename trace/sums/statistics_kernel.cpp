#include "trace/sums/statistics_kernel.h"

#include "trace/base/instruction_set.h"

#include <cstddef>
#include <cstdint>

namespace ttrace {
namespace {

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

// The lanes of one tile.
template <std::size_t kCount>
struct Tile {
  template <class T>
  using Of = Vector<T, kCount>;
};

// One stretch of one tile of lanes.
template <class Source, class Lane>
[[gnu::always_inline]] inline void sum_lanes(const unsigned char* reference,
                                             const unsigned char* candidate,
                                             LaneSums<Lane>& result,
                                             LaneExtremes<Lane>& extremes) {
  constexpr std::size_t kRowBytes = kSumLanes * sizeof(typename Source::Word);
  LaneSums<Lane> sums{};
  LaneExtremes<Lane> largest = extremes;
  for (std::size_t row = 0; row < kSumStretch / Source::kPerWord / kSumLanes; ++row) {
    typename Source::Words r;
    typename Source::Words c;
    __builtin_memcpy(&r, reference + row * kRowBytes, sizeof r);
    __builtin_memcpy(&c, candidate + row * kRowBytes, sizeof c);
    add_words<Source>(r, c, sums, largest);
  }
  result = sums;
  extremes = largest;
}

template <class Set, class Source>
[[gnu::always_inline]] inline BlockFigures sum_in(const void* reference, const void* candidate) {
  using Value = typename Source::Value;
  constexpr std::size_t kCount = kTile<Value, Set::kRegister>;
  constexpr std::size_t kWordBytes = sizeof(typename Source::Word);
  constexpr std::size_t kStretchBytes = kSumStretch / Source::kPerWord * kWordBytes;
  const auto* const r = static_cast<const unsigned char*>(reference);
  const auto* const c = static_cast<const unsigned char*>(candidate);
  LaneJoin<Value> join{};
  for (std::size_t tile = 0; tile < kSumLanes; tile += kCount) {
    LaneSums<Vector<double, kCount>> total{};
    LaneSums<Vector<Value, kCount>> sums;
    LaneExtremes<Vector<Value, kCount>> extremes{};
    for (std::size_t stretch = 0; stretch < kSumBlock / kSumStretch; ++stretch) {
      const std::size_t offset = stretch * kStretchBytes + tile * kWordBytes;
      Set::template sum_stretch<Source>(r + offset, c + offset, sums, extremes);
      flush(sums, total);
    }
    for (std::size_t lane = 0; lane < kCount; ++lane) {
      join.add({total.reference_squared[lane],
                total.candidate_squared[lane],
                total.product[lane],
                total.difference_squared[lane],
                total.difference[lane]},
               extremes.difference_squared[lane],
               extremes.reference_squared[lane],
               -extremes.different[lane]);
    }
  }
  return join.result();
}

// The instruction sets. sum_stretch() is a function of its own, so that nothing else competes for
// the registers of its loop.
struct Baseline {
  static constexpr std::size_t kRegister = 16;
  template <class Source, class Lane>
  [[gnu::noinline]] static void sum_stretch(const unsigned char* reference,
                                            const unsigned char* candidate,
                                            LaneSums<Lane>& result,
                                            LaneExtremes<Lane>& extremes) {
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
                                                        LaneSums<Lane>& result,
                                                        LaneExtremes<Lane>& extremes) {
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
                                                          LaneSums<Lane>& result,
                                                          LaneExtremes<Lane>& extremes) {
    sum_lanes<Source>(reference, candidate, result, extremes);
  }
  template <class Source>
  TTRACE_AVX512 static BlockFigures sum_block(const void* reference, const void* candidate) {
    return sum_in<Avx512, Source>(reference, candidate);
  }
};

// The kernels in the order of the element types' numbers.
template <class Set>
constexpr StatisticsKernel kernel(const char* name) {
  using Doubles = Tile<kTile<double, Set::kRegister>>;
  using Floats = Tile<kTile<float, Set::kRegister>>;
  return {name,
          {Set::template sum_block<PlainSource<Doubles, double>>,
           Set::template sum_block<PlainSource<Floats, float>>,
           Set::template sum_block<HalfSource<Floats>>,
           Set::template sum_block<Bfloat16Source<Floats>>,
           Set::template sum_block<IntegerSource<Doubles, std::int64_t>>,
           Set::template sum_block<IntegerSource<Doubles, std::int32_t>>,
           Set::template sum_block<ByteSource<Floats, false>>,
           Set::template sum_block<ByteSource<Floats, true>>}};
}

}  // namespace

constinit const StatisticsKernel kBaselineKernel = kernel<Baseline>("Baseline");
constinit const StatisticsKernel kAvx2Kernel = kernel<Avx2>("Avx2");
constinit const StatisticsKernel kAvx512Kernel = kernel<Avx512>("Avx512");

}  // namespace ttrace
