// The kernel that compares two tensors: compare() for memory of a GPU, equal to it in every bit.
//
// A team of kCompareThreads takes a group of kGroupBlocks blocks at a time and joins them along
// compare()'s tree, so that little leaves the GPU. Four threads share a block, with four of its
// lanes each. Blocks that need more care are summed again as compare() sums them.
#pragma once

#include "trace/base/host_device.h"
#include "trace/kernels/element.h"
#include "trace/kernels/grid.h"
#include "trace/kernels/pair_block.h"

#include <cstdint>
#include <type_traits>

namespace ttrace {

inline constexpr int kGroupLevel = 5;
inline constexpr int kGroupBlocks = 1 << kGroupLevel;
inline constexpr std::int64_t kGroupElements = std::int64_t{kGroupBlocks} * kSumBlock;
inline constexpr int kLanesOfThread = 4;
inline constexpr int kThreadsOfBlock = kSumLanes / kLanesOfThread;
inline constexpr int kCompareThreads = kGroupBlocks * kThreadsOfBlock;

// Two tensors of `count` elements each.
struct ElementPairs {
  ElementType reference_type;
  ElementType candidate_type;
  const void* reference;
  const void* candidate;
  std::int64_t count;
};

// A group's part of Statistics; positions are those of the tensor.
struct GroupFigures {
  // Entry i: the sums over 2^i blocks, where the group has such a subtree that is not part of a
  // larger one. A whole group has the last entry only.
  LaneSums<double> nodes[kGroupLevel + 1];
  double max_difference;
  double max_reference;
  std::int64_t max_index;  // -1 where all are equal
  std::int64_t different;
  std::int64_t reference_nonfinite;
  std::int64_t candidate_nonfinite;
  std::int64_t first_nonfinite;
};

TTRACE_KERNEL std::int64_t groups_of(std::int64_t count) {
  return (count + kGroupElements - 1) / kGroupElements;
}

// One lane's part of a block. What was summed in f32 is exact as a double.
struct LaneResult {
  LaneSums<double> sums;
  double difference_squared;
  double reference_squared;
  std::int32_t different;
  bool reference_is_zero;  // all bits
  bool candidate_is_zero;
};

// What a team shares.
struct CompareMemory {
  LaneResult lanes[kGroupBlocks][kSumLanes];
  PairBlock blocks[kGroupBlocks];
  bool again[kGroupBlocks];
  // First how many words of its lanes differ, then where the largest difference is in the part of
  // its block that the thread searches.
  int place[kCompareThreads];
  int largest;  // block with the largest difference
};

// Words of both sides as they are; beyond the end they are zero, which changes no figure.
template <class Source>
struct DirectWords {
  using Word = typename Source::Word;
  const void* reference;  // of the block
  const void* candidate;
  int count;  // elements of the block
  int element_bytes;
  bool at_once;

  // Four words from `first` on.
  TTRACE_KERNEL void load(int first, Word (&r)[kLanesOfThread], Word (&c)[kLanesOfThread]) const {
    load_side(reference, first, r);
    load_side(candidate, first, c);
  }

 private:
  TTRACE_KERNEL void load_side(const void* side, int first, Word (&words)[kLanesOfThread]) const {
    const auto* const bytes = static_cast<const unsigned char*>(side);
    const int begin = first * static_cast<int>(sizeof(Word));
    const int end = count * element_bytes;
    if (at_once && begin + static_cast<int>(sizeof(words)) <= end) {
      load_elements<kLanesOfThread>(bytes + begin, true, words);
      return;
    }
    unsigned char copied[sizeof(words)] = {};
    for (int i = 0; i < static_cast<int>(sizeof(words)) && begin + i < end; ++i) {
      copied[i] = bytes[begin + i];
    }
    load_elements<static_cast<int>(sizeof(words))>(
        copied, false, reinterpret_cast<unsigned char*>(words));
  }
};

// Elements of any type, widened to double.
struct WidenedWords {
  using Word = double;
  ElementPairs pairs;
  std::int64_t begin;  // of the block
  int count;

  TTRACE_KERNEL void load(int first,
                          double (&r)[kLanesOfThread],
                          double (&c)[kLanesOfThread]) const {
    for (int i = 0; i < kLanesOfThread; ++i) {
      const bool there = first + i < count;
      const std::int64_t index = begin + first + i;
      r[i] = there ? element_as_double(pairs.reference_type, pairs.reference, index) : 0.0;
      c[i] = there ? element_as_double(pairs.candidate_type, pairs.candidate, index) : 0.0;
    }
  }
};

template <class Word>
TTRACE_KERNEL bool has_bits(Word word) {
  if constexpr (sizeof(Word) == 8) {
    return with_bits_of<std::uint64_t>(word) != 0;
  } else {
    return with_bits_of<std::uint32_t>(word) != 0;
  }
}

// Sums the lanes from `first` on. Returns how many words of both sides differ.
template <class Source, class Words>
TTRACE_HOST_DEVICE std::int32_t sum_four_lanes(const Words& words,
                                               int first,
                                               LaneResult (&lanes)[kSumLanes]) {
  using Value = typename Source::Value;
  using Word = typename Source::Word;
  constexpr int kRows = kSumStretch / Source::kPerWord / kSumLanes;
  LaneSums<double> totals[kLanesOfThread] = {};
  LaneExtremes<Value> extremes[kLanesOfThread] = {};
  bool reference_bits[kLanesOfThread] = {};
  bool candidate_bits[kLanesOfThread] = {};
  std::int32_t differ = 0;
  for (int stretch = 0; stretch < kSumBlock / kSumStretch; ++stretch) {
    LaneSums<Value> sums[kLanesOfThread] = {};
    for (int row = 0; row < kRows; ++row) {
      Word r[kLanesOfThread];
      Word c[kLanesOfThread];
      words.load((stretch * kRows + row) * kSumLanes + first, r, c);
      for (int i = 0; i < kLanesOfThread; ++i) {
        add_words<Source>(r[i], c[i], sums[i], extremes[i]);
        reference_bits[i] = reference_bits[i] || has_bits(r[i]);
        candidate_bits[i] = candidate_bits[i] || has_bits(c[i]);
        differ += r[i] != c[i] ? 1 : 0;
      }
    }
    for (int i = 0; i < kLanesOfThread; ++i) {
      flush(sums[i], totals[i]);
    }
  }
  for (int i = 0; i < kLanesOfThread; ++i) {
    lanes[first + i] = {totals[i],
                        static_cast<double>(extremes[i].difference_squared),
                        static_cast<double>(extremes[i].reference_squared),
                        -extremes[i].different,
                        !reference_bits[i],
                        !candidate_bits[i]};
  }
  return differ;
}

// Joins the lanes of a block. Returns whether the figures can be relied on.
template <class Value>
TTRACE_HOST_DEVICE bool join_lanes(const LaneResult (&lanes)[kSumLanes],
                                   bool in_float,
                                   PairBlock& block) {
  LaneJoin<Value> join{};
  bool reference_is_zero = true;
  bool candidate_is_zero = true;
  for (int i = 0; i < kSumLanes; ++i) {
    join.add(lanes[i].sums,
             static_cast<Value>(lanes[i].difference_squared),
             static_cast<Value>(lanes[i].reference_squared),
             lanes[i].different);
    reference_is_zero = reference_is_zero && lanes[i].reference_is_zero;
    candidate_is_zero = candidate_is_zero && lanes[i].candidate_is_zero;
  }
  block = block_of(join.result(), in_float);
  return is_accurate(
      block, [=] { return reference_is_zero; }, [=] { return candidate_is_zero; });
}

// The work of one team on one group.
template <class Source, class Team>
class GroupComparison {
 public:
  TTRACE_HOST_DEVICE GroupComparison(const Team& team,
                                     CompareMemory& memory,
                                     const ElementPairs& pairs,
                                     std::int64_t group)
      : team_(team), memory_(memory), pairs_(pairs), begin_(group * kGroupElements) {
    const std::int64_t elements =
        pairs.count - begin_ < kGroupElements ? pairs.count - begin_ : kGroupElements;
    blocks_ = static_cast<int>((elements + kSumBlock - 1) / kSumBlock);
  }

  TTRACE_HOST_DEVICE void run(GroupFigures& figures) {
    sum_directly();
    sum_widened();
    sum_carefully();
    count_integers();
    find_largest();
    add_up(figures);
  }

 private:
  static constexpr bool kDirect = !std::is_void_v<Source>;

  [[nodiscard]] TTRACE_KERNEL std::int64_t first_of(int block) const {
    return begin_ + std::int64_t{block} * kSumBlock;
  }
  [[nodiscard]] TTRACE_KERNEL int size_of(int block) const {
    const std::int64_t left = pairs_.count - first_of(block);
    return static_cast<int>(left < kSumBlock ? left : kSumBlock);
  }
  // Calls the body with every block and its thread of 0 to kThreadsOfBlock - 1.
  template <class Body>
  TTRACE_HOST_DEVICE void each_quarter(const Body& body) {
    team_.each([&](int thread) {
      const int block = thread / kThreadsOfBlock;
      if (block < blocks_) {
        body(block, thread % kThreadsOfBlock);
      }
    });
  }

  // Blocks without a direct sum are summed again.
  TTRACE_HOST_DEVICE void sum_directly() {
    if constexpr (kDirect) {
      each_quarter([&](int block, int quarter) { sum_lanes_directly(block, quarter); });
    }
    each_quarter([&](int block, int quarter) {
      if (quarter != 0) {
        return;
      }
      memory_.again[block] = true;
      if constexpr (kDirect) {
        memory_.again[block] = !join_lanes<typename Source::Value>(
            memory_.lanes[block], is_summed_in_float(pairs_.reference_type), memory_.blocks[block]);
      }
    });
  }

  TTRACE_HOST_DEVICE void sum_lanes_directly(int block, int quarter) {
    const int bytes = bytes_of_element(pairs_.reference_type);
    const std::int64_t offset = first_of(block) * bytes;
    const auto* const r = static_cast<const unsigned char*>(pairs_.reference) + offset;
    const auto* const c = static_cast<const unsigned char*>(pairs_.candidate) + offset;
    const bool at_once = starts_pack(r) && starts_pack(c);
    const DirectWords<Source> words{r, c, size_of(block), bytes, at_once};
    const std::int32_t differ =
        sum_four_lanes<Source>(words, quarter * kLanesOfThread, memory_.lanes[block]);
    memory_.place[block * kThreadsOfBlock + quarter] = differ;
  }

  // Doubles have the range of every type, so what is left after them is not finite.
  TTRACE_HOST_DEVICE void sum_widened() {
    using Doubles = PlainSource<OneLane, double>;
    each_quarter([&](int block, int quarter) {
      if (memory_.again[block]) {
        const WidenedWords words{pairs_, first_of(block), size_of(block)};
        static_cast<void>(
            sum_four_lanes<Doubles>(words, quarter * kLanesOfThread, memory_.lanes[block]));
      }
    });
    each_quarter([&](int block, int quarter) {
      if (quarter == 0 && memory_.again[block]) {
        memory_.again[block] =
            !join_lanes<double>(memory_.lanes[block], false, memory_.blocks[block]);
      }
    });
  }

  TTRACE_HOST_DEVICE void sum_carefully() {
    each_quarter([&](int block, int quarter) {
      if (quarter != 0 || !memory_.again[block]) {
        return;
      }
      PairBlock careful = empty_block();
      for (int i = 0; i < size_of(block); ++i) {
        const std::int64_t index = first_of(block) + i;
        add_carefully(element_as_double(pairs_.reference_type, pairs_.reference, index),
                      element_as_double(pairs_.candidate_type, pairs_.candidate, index),
                      i,
                      careful);
      }
      memory_.blocks[block] = careful;
    });
  }

  // Two i64 may differ and be the same double: what sum_directly() counted holds.
  TTRACE_HOST_DEVICE void count_integers() {
    if constexpr (kDirect) {
      each_quarter([&](int block, int quarter) {
        if (quarter == 0 && pairs_.reference_type == ElementType::kI64) {
          memory_.blocks[block].different = 0;
          for (int i = 0; i < kThreadsOfBlock; ++i) {
            memory_.blocks[block].different += memory_.place[block * kThreadsOfBlock + i];
          }
        }
      });
    }
  }

  // The first block with the largest difference, and what every thread finds in its part of it.
  TTRACE_HOST_DEVICE void find_largest() {
    team_.each([&](int thread) {
      if (thread != 0) {
        return;
      }
      memory_.largest = 0;
      for (int block = 1; block < blocks_; ++block) {
        if (memory_.blocks[block].max_difference > memory_.blocks[memory_.largest].max_difference) {
          memory_.largest = block;
        }
      }
    });
    team_.each([&](int thread) {
      constexpr int kPart = kSumBlock / kCompareThreads;
      const int block = memory_.largest;
      int place = kSumBlock;
      for (int i = (thread + 1) * kPart - 1; i >= thread * kPart; --i) {
        const std::int64_t index = first_of(block) + i;
        if (i < size_of(block) &&
            has_maximum(element_as_double(pairs_.reference_type, pairs_.reference, index),
                        element_as_double(pairs_.candidate_type, pairs_.candidate, index),
                        memory_.blocks[block])) {
          place = i;
        }
      }
      memory_.place[thread] = place;
    });
  }

  TTRACE_HOST_DEVICE void add_up(GroupFigures& figures) {
    team_.each([&](int thread) {
      if (thread == 0) {
        add_counts(figures);
      }
    });
    for (int level = 0; level < kGroupLevel; ++level) {
      team_.each([&](int thread) {
        const int width = 1 << level;
        const int left = thread * 2 * width;
        if (left + 2 * width <= blocks_) {
          flush(memory_.blocks[left + width].sums, memory_.blocks[left].sums);
        }
      });
    }
    team_.each([&](int thread) {
      if (thread == 0) {
        int first = 0;
        for (int level = kGroupLevel; level >= 0; --level) {
          figures.nodes[level] = {};
          if ((blocks_ >> level & 1) != 0) {
            figures.nodes[level] = memory_.blocks[first].sums;
            first += 1 << level;
          }
        }
      }
    });
  }

  TTRACE_HOST_DEVICE void add_counts(GroupFigures& figures) {
    figures.max_difference = memory_.blocks[memory_.largest].max_difference;
    figures.max_reference = 0.0;
    figures.max_index = -1;
    figures.different = figures.reference_nonfinite = figures.candidate_nonfinite = 0;
    figures.first_nonfinite = -1;
    for (int i = kCompareThreads - 1; i >= 0 && figures.max_difference > 0.0; --i) {
      if (memory_.place[i] < kSumBlock) {
        figures.max_index = first_of(memory_.largest) + memory_.place[i];
      }
    }
    for (int i = 0; i < blocks_; ++i) {
      const PairBlock& block = memory_.blocks[i];
      figures.max_reference =
          figures.max_reference < block.max_reference ? block.max_reference : figures.max_reference;
      figures.different += block.different;
      figures.reference_nonfinite += block.reference_nonfinite;
      figures.candidate_nonfinite += block.candidate_nonfinite;
      if (figures.first_nonfinite < 0 && block.first_nonfinite >= 0) {
        figures.first_nonfinite = first_of(i) + block.first_nonfinite;
      }
    }
  }

  const Team& team_;
  CompareMemory& memory_;
  const ElementPairs pairs_;
  const std::int64_t begin_;
  int blocks_;
};

// The kernel: the figures of every group. `Source` reads pairs of one direct type; void: pairs of
// any types.
template <class Source, class Team>
TTRACE_HOST_DEVICE void compare_pairs(Grid teams,
                                      const Team& team,
                                      CompareMemory& memory,
                                      const ElementPairs& pairs,
                                      GroupFigures* figures) {
  for (std::int64_t group = teams.first; group < groups_of(pairs.count); group += teams.stride) {
    GroupComparison<Source, Team>(team, memory, pairs, group).run(figures[group]);
  }
}

// Calls `launch(Tag<Source>)` with what reads such pairs on one lane.
template <class Source>
struct SourceTag {
  using Type = Source;
};
template <class Launch>
void with_source_of(ElementType reference, ElementType candidate, const Launch& launch) {
  if (reference != candidate) {
    return launch(SourceTag<void>());
  }
  switch (reference) {
    case ElementType::kF64:
      return launch(SourceTag<PlainSource<OneLane, double>>());
    case ElementType::kF32:
      return launch(SourceTag<PlainSource<OneLane, float>>());
    case ElementType::kF16:
      return launch(SourceTag<HalfSource<OneLane>>());
    case ElementType::kBF16:
      return launch(SourceTag<Bfloat16Source<OneLane>>());
    case ElementType::kI64:
      return launch(SourceTag<IntegerSource<OneLane, std::int64_t>>());
    case ElementType::kI32:
      return launch(SourceTag<IntegerSource<OneLane, std::int32_t>>());
    case ElementType::kU8:
      return launch(SourceTag<ByteSource<OneLane, false>>());
    case ElementType::kBool:
      return launch(SourceTag<ByteSource<OneLane, true>>());
    default:
      return launch(SourceTag<void>());
  }
}

}  // namespace ttrace
