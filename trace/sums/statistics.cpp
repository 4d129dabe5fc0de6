#include "trace/sums/statistics.h"

#include "trace/base/instruction_set.h"
#include "trace/kernels/compare_pairs.h"
#include "trace/sums/statistics_kernel.h"

#include <ttrace/error.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <optional>

namespace ttrace {

static_assert(kSumBlock == kStatisticsBlock);

namespace {

std::size_t block_bytes(ElementType type) {
  return static_cast<std::size_t>(kStatisticsBlock) * element_size(type);
}

bool is_zero(const std::byte* bytes, std::size_t size) {
  return bytes[0] == std::byte{0} && std::memcmp(bytes, bytes + 1, size - 1) == 0;
}

// Sums a full block. Returns nothing if the block needs more range or more care.
std::optional<PairBlock> try_block(const StatisticsKernel& kernel,
                                   ElementType type,
                                   const std::byte* reference,
                                   const std::byte* candidate) {
  const BlockFigures figures =
      kernel.sum_block[static_cast<std::size_t>(type)](reference, candidate);
  const PairBlock block = block_of(figures, is_summed_in_float(type));
  const bool accurate = is_accurate(
      block,
      [&] { return is_zero(reference, block_bytes(type)); },
      [&] { return is_zero(candidate, block_bytes(type)); });
  return accurate ? std::optional(block) : std::nullopt;
}

// Sums element by element; counts elements that are not finite, but leaves them out.
PairBlock sum_carefully(const double* reference, const double* candidate, std::int64_t count) {
  PairBlock block = empty_block();
  for (std::int64_t i = 0; i < count; ++i) {
    add_carefully(reference[i], candidate[i], i, block);
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
  [[nodiscard]] bool same_type() const { return reference_type == candidate_type; }
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

// Lanes of double have the range of every type, so what is left after them is not finite.
PairBlock compare_widened(const StatisticsKernel& kernel, const Pair& pair) {
  DoubleBlock reference{};
  DoubleBlock candidate{};
  to_double(pair.reference_type, pair.reference, pair.count, reference.data());
  to_double(pair.candidate_type, pair.candidate, pair.count, candidate.data());
  const std::optional<PairBlock> fast =
      try_block(kernel, ElementType::kF64, bytes_of(reference), bytes_of(candidate));
  return fast ? *fast : sum_carefully(reference.data(), candidate.data(), pair.count);
}

// A short block is filled up with zeros, which change no figure.
std::optional<PairBlock> compare_directly(const StatisticsKernel& kernel, const Pair& pair) {
  const ElementType type = pair.reference_type;
  if (pair.count == kStatisticsBlock) {
    return try_block(kernel, type, pair.reference, pair.candidate);
  }
  const std::size_t bytes = static_cast<std::size_t>(pair.count) * element_size(type);
  DoubleBlock reference{};
  DoubleBlock candidate{};
  std::memcpy(reference.data(), pair.reference, bytes);
  std::memcpy(candidate.data(), pair.candidate, bytes);
  return try_block(kernel, type, bytes_of(reference), bytes_of(candidate));
}

PairBlock compare_block(const StatisticsKernel& kernel, const Pair& pair) {
  const std::optional<PairBlock> direct = pair.same_type() && is_direct(pair.reference_type)
                                              ? compare_directly(kernel, pair)
                                              : std::nullopt;
  PairBlock block = direct ? *direct : compare_widened(kernel, pair);
  if (pair.both(ElementType::kI64)) {
    block.different = count_different_integers(pair);
  }
  return block;
}

// Position of the first element that has the block's largest difference.
std::int64_t find_maximum(const Pair& pair, const PairBlock& block) {
  constexpr std::int64_t kChunk = 64;  // looked at together; often the first has it
  std::array<double, kChunk> reference{};
  std::array<double, kChunk> candidate{};
  const std::size_t reference_size = element_size(pair.reference_type);
  const std::size_t candidate_size = element_size(pair.candidate_type);
  for (std::int64_t begin = 0; begin < pair.count; begin += kChunk) {
    const auto offset = static_cast<std::size_t>(begin);
    const std::int64_t count = std::min(kChunk, pair.count - begin);
    to_double(
        pair.reference_type, pair.reference + offset * reference_size, count, reference.data());
    to_double(
        pair.candidate_type, pair.candidate + offset * candidate_size, count, candidate.data());
    for (std::int64_t i = 0; i < count; ++i) {
      const auto at = static_cast<std::size_t>(i);
      if (has_maximum(reference[at], candidate[at], block)) {
        return begin + i;
      }
    }
  }
  TTRACE_THROW(InternalError, "no element has the largest difference of its block");
}

void add_sums(const SumNode& from, SumNode& to) {
  to.reference_squared += from.reference_squared;
  to.candidate_squared += from.candidate_squared;
  to.product += from.product;
  to.difference_squared += from.difference_squared;
  to.difference += from.difference;
}

SumNode node_of(std::int64_t block, int level, const LaneSums<double>& sums) {
  return {block,
          level,
          sums.reference_squared,
          sums.candidate_squared,
          sums.product,
          sums.difference_squared,
          sums.difference};
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
void add_block(const Pair& pair,
               const PairBlock& block,
               std::int64_t position,
               Statistics& statistics) {
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
  append(node_of(position / kStatisticsBlock, 0, block.sums), statistics.nodes);
}

// `first`: the number of the group's first block. `blocks`: how many it has.
void add_group(const GroupFigures& group,
               std::int64_t first,
               std::int64_t blocks,
               Statistics& statistics) {
  if (group.max_difference > statistics.max_difference) {
    statistics.max_difference = group.max_difference;
    statistics.max_index = group.max_index;
  }
  statistics.max_reference = std::max(statistics.max_reference, group.max_reference);
  statistics.different += group.different;
  statistics.reference_nonfinite += group.reference_nonfinite;
  statistics.candidate_nonfinite += group.candidate_nonfinite;
  if (statistics.first_nonfinite < 0) {
    statistics.first_nonfinite = group.first_nonfinite;
  }
  for (int level = kGroupLevel; level >= 0; --level) {
    if ((blocks >> level & 1) != 0) {
      append(node_of(first, level, group.nodes[level]), statistics.nodes);
      first += std::int64_t{1} << level;
    }
  }
}

}  // namespace

Statistics statistics_of(std::span<const GroupFigures> groups, std::int64_t count) {
  Statistics statistics;
  statistics.count = count;
  const std::int64_t blocks = (count + kStatisticsBlock - 1) / kStatisticsBlock;
  std::int64_t first = 0;
  for (const GroupFigures& group : groups) {
    add_group(group, first, std::min<std::int64_t>(kGroupBlocks, blocks - first), statistics);
    first += kGroupBlocks;
  }
  total_sums(statistics);
  return statistics;
}

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

Statistics compare_with(const StatisticsKernel& kernel,
                        const TensorBytes& reference,
                        const TensorBytes& candidate,
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
  Pair pair{reference.type, reference.bytes, candidate.type, candidate.bytes, 0};
  for (std::int64_t position = first; position < first + count; position += pair.count) {
    const std::int64_t number = position / kStatisticsBlock;
    pair.count = std::min((number + 1) * kStatisticsBlock, first + count) - position;
    add_block(pair, compare_block(kernel, pair), position, statistics);
    pair.reference += static_cast<std::size_t>(pair.count) * element_size(reference.type);
    pair.candidate += static_cast<std::size_t>(pair.count) * element_size(candidate.type);
  }
  total_sums(statistics);
  return statistics;
}

Statistics compare(ElementType reference_type,
                   const void* reference,
                   ElementType candidate_type,
                   const void* candidate,
                   std::int64_t count,
                   std::int64_t first) {
  static const StatisticsKernel* const kernel =
      fastest(&kBaselineKernel, &kAvx2Kernel, &kAvx512Kernel);
  return compare_with(*kernel,
                      {reference_type, static_cast<const std::byte*>(reference)},
                      {candidate_type, static_cast<const std::byte*>(candidate)},
                      count,
                      first);
}

}  // namespace ttrace
