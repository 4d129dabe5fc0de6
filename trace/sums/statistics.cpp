#include "trace/sums/statistics.h"

#include "trace/sums/statistics_dispatch.h"

#include <ttrace/error.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <optional>

namespace ttrace {

static_assert(kKernelBlock == kStatisticsBlock);
static_assert(kKernelTypes == static_cast<int>(ElementType::kBool) + 1);

namespace {

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

constexpr double kTinyFloat = 1e-14;
constexpr double kTinyDouble = 1e-149;

std::size_t block_bytes(ElementType type) {
  return static_cast<std::size_t>(kStatisticsBlock) * element_size(type);
}

// Whether the kernel sums the type in f32 lanes.
bool is_summed_in_float(ElementType type) {
  return type == ElementType::kF32 || type == ElementType::kF16 || type == ElementType::kBF16;
}

// Others are widened.
bool has_kernel(ElementType type) {
  return static_cast<int>(type) < kKernelTypes;
}

bool is_zero(const std::byte* bytes, std::size_t size) {
  return bytes[0] == std::byte{0} && std::memcmp(bytes, bytes + 1, size - 1) == 0;
}

// Whether everything was finite and no square left the range of its type. Squares of a block whose
// largest magnitude is tiny come too near the smallest normal number (1e-38, 2e-308) for sums that
// are right to 1e-6, even where the processor flushes denormals to zero.
bool is_accurate(ElementType type,
                 const Block& block,
                 const std::byte* reference,
                 const std::byte* candidate) {
  const double least = is_summed_in_float(type) ? kTinyFloat : kTinyDouble;
  const SumNode& sums = block.sums;
  return std::isfinite(sums.reference_squared) && std::isfinite(sums.candidate_squared) &&
         std::isfinite(sums.difference_squared) &&
         (block.different == 0 || block.max_difference >= least) &&
         (block.max_reference >= least || is_zero(reference, block_bytes(type))) &&
         (sums.candidate_squared >= least * least || is_zero(candidate, block_bytes(type)));
}

// Sums a full block. Returns nothing if the block needs more range or more care.
std::optional<Block> try_block(const StatisticsKernel& kernel,
                               ElementType type,
                               const std::byte* reference,
                               const std::byte* candidate) {
  const BlockFigures figures =
      kernel.sum_block[static_cast<std::size_t>(type)](reference, candidate);
  Block block;
  block.sums.reference_squared = figures.reference_squared;
  block.sums.candidate_squared = figures.candidate_squared;
  block.sums.product = figures.product;
  block.sums.difference_squared = figures.difference_squared;
  block.sums.difference = figures.difference;
  block.max_difference = figures.max_difference;
  block.max_reference = figures.max_reference;
  block.in_float = is_summed_in_float(type);
  block.different = figures.different;
  return is_accurate(type, block, reference, candidate) ? std::optional(block) : std::nullopt;
}

// Sums element by element; counts elements that are not finite, but leaves them out.
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
Block compare_widened(const StatisticsKernel& kernel, const Pair& pair) {
  DoubleBlock reference{};
  DoubleBlock candidate{};
  to_double(pair.reference_type, pair.reference, pair.count, reference.data());
  to_double(pair.candidate_type, pair.candidate, pair.count, candidate.data());
  const std::optional<Block> fast =
      try_block(kernel, ElementType::kF64, bytes_of(reference), bytes_of(candidate));
  return fast ? *fast : sum_carefully(reference.data(), candidate.data(), pair.count);
}

// A short block is filled up with zeros, which change no figure.
std::optional<Block> compare_directly(const StatisticsKernel& kernel, const Pair& pair) {
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

Block compare_block(const StatisticsKernel& kernel, const Pair& pair) {
  const std::optional<Block> direct = pair.same_type() && has_kernel(pair.reference_type)
                                          ? compare_directly(kernel, pair)
                                          : std::nullopt;
  Block block = direct ? *direct : compare_widened(kernel, pair);
  if (pair.both(ElementType::kI64)) {
    block.different = count_different_integers(pair);
  }
  return block;
}

// Position of the first element whose difference, rounded as when the block was summed, is the
// block's largest. (f32 differences rounded to double first come out the same.)
std::int64_t find_maximum(const Pair& pair, const Block& block) {
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
      const double distance = std::abs(candidate[at] - reference[at]);
      if (block.max_difference == (block.in_float ? static_cast<float>(distance) : distance)) {
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
  static const std::vector<const StatisticsKernel*> kernels = available_kernels();
  return compare_with(*kernels.back(),
                      {reference_type, static_cast<const std::byte*>(reference)},
                      {candidate_type, static_cast<const std::byte*>(candidate)},
                      count,
                      first);
}

}  // namespace ttrace
