#include <ttrace/error.h>
#include <ttrace/statistics.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <optional>
#include <type_traits>

namespace ttrace {
namespace {

// Every block is summed in this many interleaved lanes, whatever the width of a vector register, so
// that sums do not depend on the instruction set. (A compiler that contracts products and sums into
// fused operations needs -ffp-contract=off for the same reason.)
constexpr std::size_t kLanes = 16;
// Elements whose sums are kept in the lanes' own type before they are flushed to double: 16
// additions per lane, so that a sum of f32 squares is off by 1e-6 at worst.
constexpr std::size_t kStretch = 256;
// One block's part of Statistics; positions are relative to the block.
struct Block {
  SumNode sums;
  double max_difference = 0.0;
  double max_reference = 0.0;
  bool in_float = false;  // the maximum difference is rounded to f32
  std::int64_t different = 0;
  std::int64_t reference_nonfinite = 0;
  std::int64_t candidate_nonfinite = 0;
  std::int64_t first_nonfinite = -1;
};

// How the elements of a type are read: word by word, kPerWord elements each. kTile lanes fill one
// 16-byte register, so that their accumulators stay in registers; the lanes are independent of each
// other, so working on more at a time would give the same result.
struct DoubleSource {
  using Value = double;
  using Word = std::uint64_t;
  static constexpr int kPerWord = 1;
  static constexpr std::size_t kTile = 2;
  [[gnu::always_inline]] static double first(Word word) { return std::bit_cast<double>(word); }
};

struct FloatSource {
  using Value = float;
  using Word = std::uint32_t;
  static constexpr int kPerWord = 1;
  static constexpr std::size_t kTile = 4;
  [[gnu::always_inline]] static float first(Word word) { return std::bit_cast<float>(word); }
};

// Two bf16 in a word: widening is one shift for the first and one mask for the second.
struct Bfloat16Source {
  using Value = float;
  using Word = std::uint32_t;
  static constexpr int kPerWord = 2;
  static constexpr std::size_t kTile = 4;
  [[gnu::always_inline]] static float first(Word word) { return std::bit_cast<float>(word << 16U); }
  [[gnu::always_inline]] static float second(Word word) {
    return std::bit_cast<float>(word & 0xffff0000U);
  }
};

template <class Value, std::size_t kTile>
struct Sums {
  std::array<Value, kTile> reference_squared{};
  std::array<Value, kTile> candidate_squared{};
  std::array<Value, kTile> product{};
  std::array<Value, kTile> difference_squared{};
  std::array<Value, kTile> difference{};
};

// Largest squares instead of largest magnitudes: the root of a rounded square is the magnitude
// again (in base 2, short of overflow and underflow), and the squares are there anyway.
template <class Value, std::size_t kTile>
struct Extremes {
  std::array<Value, kTile> difference_squared{};
  std::array<Value, kTile> reference_squared{};
  // As wide as the values, so that a comparison's mask is the number to subtract.
  std::array<std::conditional_t<sizeof(Value) == 8, std::int64_t, std::int32_t>, kTile> different{};
};

template <class Value, std::size_t kTile>
[[gnu::always_inline]] inline void add_pair(Value reference,
                                            Value candidate,
                                            std::size_t lane,
                                            Sums<Value, kTile>& sums,
                                            Extremes<Value, kTile>& extremes) {
  const Value difference = candidate - reference;
  const Value reference_squared = reference * reference;
  const Value difference_squared = difference * difference;
  sums.reference_squared[lane] += reference_squared;
  sums.candidate_squared[lane] += candidate * candidate;
  sums.product[lane] += reference * candidate;
  sums.difference_squared[lane] += difference_squared;
  sums.difference[lane] += difference;
  // Written so that a NaN is dropped: the sums of squares tell that there was one.
  Value& largest_difference = extremes.difference_squared[lane];
  largest_difference =
      largest_difference < difference_squared ? difference_squared : largest_difference;
  Value& largest_reference = extremes.reference_squared[lane];
  largest_reference = largest_reference < reference_squared ? reference_squared : largest_reference;
  extremes.different[lane] += reference != candidate ? 1 : 0;
}

// One stretch of one tile of lanes. A function of its own, so that nothing else competes for the
// registers of its loop.
template <class Source, std::size_t kTile = Source::kTile>
[[gnu::noinline]] Sums<typename Source::Value, kTile> sum_stretch(
    const std::byte* reference,
    const std::byte* candidate,
    Extremes<typename Source::Value, kTile>& extremes) {
  using Word = typename Source::Word;
  Sums<typename Source::Value, kTile> sums;
  Extremes<typename Source::Value, kTile> largest = extremes;
  for (std::size_t row = 0; row < kStretch / Source::kPerWord; row += kLanes) {
    std::array<Word, kTile> reference_words{};
    std::array<Word, kTile> candidate_words{};
    std::memcpy(reference_words.data(), reference + row * sizeof(Word), sizeof reference_words);
    std::memcpy(candidate_words.data(), candidate + row * sizeof(Word), sizeof candidate_words);
#pragma omp simd
    for (std::size_t lane = 0; lane < kTile; ++lane) {
      add_pair(Source::first(reference_words[lane]),
               Source::first(candidate_words[lane]),
               lane,
               sums,
               largest);
      if constexpr (Source::kPerWord == 2) {
        add_pair(Source::second(reference_words[lane]),
                 Source::second(candidate_words[lane]),
                 lane,
                 sums,
                 largest);
      }
    }
  }
  extremes = largest;
  return sums;
}

template <class Value, std::size_t kTile>
void flush(const Sums<Value, kTile>& from, Sums<double, kTile>& to) {
#pragma omp simd
  for (std::size_t lane = 0; lane < kTile; ++lane) {
    to.reference_squared[lane] += from.reference_squared[lane];
    to.candidate_squared[lane] += from.candidate_squared[lane];
    to.product[lane] += from.product[lane];
    to.difference_squared[lane] += from.difference_squared[lane];
    to.difference[lane] += from.difference[lane];
  }
}

template <class Source>
constexpr std::size_t kBlockBytes = kStatisticsBlock / Source::kPerWord *
                                    sizeof(typename Source::Word);

// The sums, maxima and number of different elements of a full block, to be judged by is_accurate().
template <class Source>
Block sum_block(const std::byte* reference, const std::byte* candidate) {
  using Value = typename Source::Value;
  constexpr std::size_t kTile = Source::kTile;
  constexpr std::size_t kWordBytes = sizeof(typename Source::Word);
  constexpr std::size_t kStretchBytes = kStretch / Source::kPerWord * kWordBytes;
  Block block;
  block.in_float = std::is_same_v<Value, float>;
  for (std::size_t tile = 0; tile < kLanes; tile += kTile) {
    Sums<double, kTile> total;
    Extremes<Value, kTile> extremes;
    for (std::size_t stretch = 0; stretch < kBlockBytes<Source>; stretch += kStretchBytes) {
      const std::size_t offset = stretch + tile * kWordBytes;
      flush(sum_stretch<Source>(reference + offset, candidate + offset, extremes), total);
    }
    for (std::size_t lane = 0; lane < kTile; ++lane) {
      block.sums.reference_squared += total.reference_squared[lane];
      block.sums.candidate_squared += total.candidate_squared[lane];
      block.sums.product += total.product[lane];
      block.sums.difference_squared += total.difference_squared[lane];
      block.sums.difference += total.difference[lane];
      block.max_difference =
          std::max<double>(block.max_difference, std::sqrt(extremes.difference_squared[lane]));
      block.max_reference =
          std::max<double>(block.max_reference, std::sqrt(extremes.reference_squared[lane]));
      block.different += extremes.different[lane];
    }
  }
  return block;
}

// Largest magnitude of a block below which squares come too near the smallest normal number (1e-38,
// 2e-308) for sums that are right to 1e-6, even where the processor flushes denormals to zero.
template <class Value>
constexpr double kTiny = sizeof(Value) == sizeof(float) ? 1e-14 : 1e-149;

bool is_zero(const std::byte* bytes, std::size_t size) {
  return bytes[0] == std::byte{0} && std::memcmp(bytes, bytes + 1, size - 1) == 0;
}

// Whether everything was finite and no square left the range of its type.
template <class Source>
bool is_accurate(const Block& block, const std::byte* reference, const std::byte* candidate) {
  constexpr double kLeast = kTiny<typename Source::Value>;
  const SumNode& sums = block.sums;
  return std::isfinite(sums.reference_squared) && std::isfinite(sums.candidate_squared) &&
         (block.different == 0 || block.max_difference >= kLeast) &&
         (block.max_reference >= kLeast || is_zero(reference, kBlockBytes<Source>)) &&
         (sums.candidate_squared >= kLeast * kLeast || is_zero(candidate, kBlockBytes<Source>));
}

// Nothing where the block has to be summed with more range or more care.
template <class Source>
std::optional<Block> try_block(const std::byte* reference, const std::byte* candidate) {
  const Block block = sum_block<Source>(reference, candidate);
  if (is_accurate<Source>(block, reference, candidate)) {
    return block;
  }
  return std::nullopt;
}

// Element by element, leaving out and counting what is not finite.
Block sum_carefully(const double* reference, const double* candidate, std::int64_t count) {
  Block block;
  for (std::int64_t i = 0; i < count; ++i) {
    const double r = reference[i];
    const double c = candidate[i];
    const bool equal = r == c || (std::isnan(r) && std::isnan(c));
    block.different += equal ? 0 : 1;
    if (std::isfinite(r) && std::isfinite(c)) {
      const double difference = c - r;
      block.sums.reference_squared += r * r;
      block.sums.candidate_squared += c * c;
      block.sums.product += r * c;
      block.sums.difference_squared += difference * difference;
      block.sums.difference += difference;
      block.max_difference = std::max(block.max_difference, std::abs(difference));
      block.max_reference = std::max(block.max_reference, std::abs(r));
      continue;
    }
    block.reference_nonfinite += std::isfinite(r) ? 0 : 1;
    block.candidate_nonfinite += std::isfinite(c) ? 0 : 1;
    if (!std::isfinite(c) && !equal && block.first_nonfinite < 0) {
      block.first_nonfinite = i;
    }
  }
  return block;
}

using DoubleBlock = std::array<double, kStatisticsBlock>;

const std::byte* bytes_of(const DoubleBlock& values) {
  return reinterpret_cast<const std::byte*>(values.data());
}

// Both sides of one block.
struct Pair {
  ElementType reference_type;
  const std::byte* reference;
  ElementType candidate_type;
  const std::byte* candidate;
  std::int64_t count;  // 1 to kStatisticsBlock

  [[nodiscard]] bool both(ElementType type) const {
    return reference_type == type && candidate_type == type;
  }
};

// Two i64 may differ and be the same double.
std::int64_t count_different_integers(const Pair& pair) {
  std::int64_t different = 0;
  for (std::int64_t i = 0; i < pair.count; ++i) {
    const std::size_t offset = static_cast<std::size_t>(i) * sizeof(std::int64_t);
    different +=
        std::memcmp(pair.reference + offset, pair.candidate + offset, sizeof(std::int64_t)) == 0
            ? 0
            : 1;
  }
  return different;
}

Block compare_widened(const Pair& pair) {
  DoubleBlock reference{};
  DoubleBlock candidate{};
  to_double(pair.reference_type, pair.reference, pair.count, reference.data());
  to_double(pair.candidate_type, pair.candidate, pair.count, candidate.data());
  const std::optional<Block> fast =
      try_block<DoubleSource>(bytes_of(reference), bytes_of(candidate));
  Block block = fast ? *fast : sum_carefully(reference.data(), candidate.data(), pair.count);
  if (pair.both(ElementType::kI64)) {
    block.different = count_different_integers(pair);
  }
  return block;
}

// For two sides of the source's own type. A short block is filled up with zeros, which change no
// figure.
template <class Source>
Block compare_directly(const Pair& pair) {
  std::optional<Block> block;
  if (pair.count == kStatisticsBlock) {
    block = try_block<Source>(pair.reference, pair.candidate);
  } else {
    std::array<std::byte, kBlockBytes<Source>> reference{};
    std::array<std::byte, kBlockBytes<Source>> candidate{};
    const std::size_t bytes =
        static_cast<std::size_t>(pair.count) * element_size(pair.reference_type);
    std::memcpy(reference.data(), pair.reference, bytes);
    std::memcpy(candidate.data(), pair.candidate, bytes);
    block = try_block<Source>(reference.data(), candidate.data());
  }
  return block ? *block : compare_widened(pair);
}

Block compare_block(const Pair& pair) {
  if (pair.both(ElementType::kF32)) {
    return compare_directly<FloatSource>(pair);
  }
  if (pair.both(ElementType::kBF16)) {
    return compare_directly<Bfloat16Source>(pair);
  }
  if (pair.both(ElementType::kF64)) {
    return compare_directly<DoubleSource>(pair);
  }
  return compare_widened(pair);
}

// Position of the first element whose difference, rounded as when the block was summed, is the
// block's largest. (f32 differences rounded to double first come out the same.)
std::int64_t find_maximum(const Pair& pair, const Block& block) {
  DoubleBlock reference{};
  DoubleBlock candidate{};
  to_double(pair.reference_type, pair.reference, pair.count, reference.data());
  to_double(pair.candidate_type, pair.candidate, pair.count, candidate.data());
  const auto* const found =
      std::mismatch(reference.begin(),
                    reference.end(),
                    candidate.begin(),
                    [&block](double r, double c) {
                      const double distance = std::abs(c - r);
                      return block.max_difference !=
                             (block.in_float ? static_cast<float>(distance) : distance);
                    })
          .first;
  return found - reference.begin();
}

void add_sums(const SumNode& from, SumNode& to) {
  to.reference_squared += from.reference_squared;
  to.candidate_squared += from.candidate_squared;
  to.product += from.product;
  to.difference_squared += from.difference_squared;
  to.difference += from.difference;
}

bool are_siblings(const SumNode& left, const SumNode& right) {
  const std::int64_t blocks = std::int64_t{1} << left.level;
  return left.level == right.level && left.block % (2 * blocks) == 0 &&
         right.block == left.block + blocks;
}

// Appends a node and joins siblings into their parent as long as there are any. The nodes of a
// range of blocks are then the largest subtrees within it, however the range was put together.
void append(const SumNode& node, std::vector<SumNode>& nodes) {
  nodes.push_back(node);
  while (nodes.size() > 1 && are_siblings(nodes[nodes.size() - 2], nodes.back())) {
    const SumNode right = nodes.back();
    nodes.pop_back();
    add_sums(right, nodes.back());
    ++nodes.back().level;
  }
}

void total_sums(Statistics& statistics) {
  SumNode total;
  for (const SumNode& node : statistics.nodes) {
    add_sums(node, total);
  }
  statistics.reference_squared = total.reference_squared;
  statistics.candidate_squared = total.candidate_squared;
  statistics.product = total.product;
  statistics.difference_squared = total.difference_squared;
  statistics.difference = total.difference;
}

// `position` is the logical position of the block's first element.
void add_block(const Pair& pair, Block block, std::int64_t position, Statistics& statistics) {
  // Only blocks that hold a new maximum are searched for its place.
  if (block.max_difference > statistics.max_difference) {
    statistics.max_difference = block.max_difference;
    statistics.max_index = position + find_maximum(pair, block);
  }
  statistics.max_reference = std::max(statistics.max_reference, block.max_reference);
  statistics.different += block.different;
  statistics.reference_nonfinite += block.reference_nonfinite;
  statistics.candidate_nonfinite += block.candidate_nonfinite;
  if (statistics.first_nonfinite < 0 && block.first_nonfinite >= 0) {
    statistics.first_nonfinite = position + block.first_nonfinite;
  }
  block.sums.block = position / kStatisticsBlock;
  append(block.sums, statistics.nodes);
}

}  // namespace

void Statistics::merge(const Statistics& next) {
  count += next.count;
  if (next.max_difference > max_difference) {
    max_difference = next.max_difference;
    max_index = next.max_index;
  }
  max_reference = std::max(max_reference, next.max_reference);
  different += next.different;
  reference_nonfinite += next.reference_nonfinite;
  candidate_nonfinite += next.candidate_nonfinite;
  if (first_nonfinite < 0) {
    first_nonfinite = next.first_nonfinite;
  }
  for (const SumNode& node : next.nodes) {
    append(node, nodes);
  }
  total_sums(*this);
}

double Statistics::error_norm() const {
  return std::sqrt(difference_squared);
}

double Statistics::reference_norm() const {
  return std::sqrt(reference_squared);
}

double Statistics::relative_error() const {
  if (reference_squared == 0.0) {
    return difference_squared == 0.0 ? 0.0 : std::numeric_limits<double>::infinity();
  }
  return error_norm() / reference_norm();
}

double Statistics::factor() const {
  return reference_squared == 0.0 ? std::numeric_limits<double>::quiet_NaN()
                                  : product / reference_squared;
}

Statistics compare(ElementType reference_type,
                   const void* reference,
                   ElementType candidate_type,
                   const void* candidate,
                   std::int64_t count,
                   std::int64_t first) {
  TTRACE_CHECK(count >= 0 && first >= 0,
               UsageError,
               "cannot compare ",
               count,
               " elements from position ",
               first,
               " on: neither may be negative");
  Statistics statistics;
  statistics.count = count;
  Pair pair{reference_type,
            static_cast<const std::byte*>(reference),
            candidate_type,
            static_cast<const std::byte*>(candidate),
            0};
  for (std::int64_t position = first; position < first + count; position += pair.count) {
    const std::int64_t number = position / kStatisticsBlock;
    pair.count = std::min((number + 1) * kStatisticsBlock, first + count) - position;
    add_block(pair, compare_block(pair), position, statistics);
    pair.reference += static_cast<std::size_t>(pair.count) * element_size(reference_type);
    pair.candidate += static_cast<std::size_t>(pair.count) * element_size(candidate_type);
  }
  total_sums(statistics);
  return statistics;
}

}  // namespace ttrace
