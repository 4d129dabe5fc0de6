// One pass over a pair of tensors; partial results merge.
//
// Blocks of kStatisticsBlock elements are cut at multiples of that size in logical coordinates and
// their sums are added along one fixed binary tree over the block numbers. So neither the number of
// threads, nor where the work was split between them, nor the instruction set changes a bit.
//
// Where both sides are f32, f16 or bf16, products are formed in f32 and added in f32 lanes of 16
// terms, which are then flushed to double: a sum of squares is within 1e-6 of itself, a sum that
// cancels within 1e-6 of the sum of its terms' magnitudes. All other pairs, and blocks whose
// squares leave the range of f32, are summed in double throughout.
//
// Thread-safety: values and free functions without shared state; call from any thread.
#pragma once

#include <ttrace/element_type.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace ttrace {

inline constexpr std::int64_t kStatisticsBlock = 1024;

// The sums over 2^level blocks from `block` on; `block` is a multiple of 2^level.
struct SumNode {
  std::int64_t block = 0;
  int level = 0;
  double reference_squared = 0.0;
  double candidate_squared = 0.0;
  double product = 0.0;
  double difference_squared = 0.0;
  double difference = 0.0;
};

// Reference r, candidate c, d = c - r. Sums are over elements finite on both sides.
struct Statistics {
  std::int64_t count = 0;
  double reference_squared = 0.0;   // sum r^2
  double candidate_squared = 0.0;   // sum c^2
  double product = 0.0;             // sum r*c
  double difference_squared = 0.0;  // sum d^2
  double difference = 0.0;          // sum d
  double max_difference = 0.0;      // max |d|
  std::int64_t max_index = -1;      // row-major logical position of the first max |d|; -1 if d == 0
  double max_reference = 0.0;       // max |r|
  std::int64_t different = 0;       // elements whose values differ; NaN equals NaN, -0 equals 0
  std::int64_t reference_nonfinite = 0;
  std::int64_t candidate_nonfinite = 0;
  std::int64_t first_nonfinite = -1;  // position of the first NaN or Inf only the candidate has
  // From sketches: sums are estimates, the largest difference is one of sums of elements, there are
  // no positions, and either no element is different or all are.
  bool is_estimate = false;
  std::vector<SumNode> nodes;  // what the sums above are the total of; what makes merge() exact

  // Appends what follows in logical order. Positions of `next` are already global. Splits at
  // multiples of kStatisticsBlock give the same bits as one pass. Sums are derived from `nodes`.
  void merge(const Statistics& next);

  [[nodiscard]] double error_norm() const;      // ||c - r||
  [[nodiscard]] double reference_norm() const;  // ||r||
  [[nodiscard]] double relative_error()
      const;                            // ||c - r|| / ||r||; 0 if both 0, Inf if only ||r|| is
  [[nodiscard]] double factor() const;  // alpha = <c, r> / <r, r>; NaN where ||r|| is 0
};

// Both sides contiguous, `count` elements each, at any alignment. `first` is the logical position
// of element 0.
[[nodiscard]] Statistics compare(ElementType reference_type,
                                 const void* reference,
                                 ElementType candidate_type,
                                 const void* candidate,
                                 std::int64_t count,
                                 std::int64_t first = 0);

struct GroupFigures;

// The result of compare() from the figures of all groups (trace/kernels/compare_pairs.h) of tensors
// of `count` elements.
[[nodiscard]] Statistics statistics_of(std::span<const GroupFigures> groups, std::int64_t count);

struct StatisticsKernel;

struct TensorBytes {
  ElementType type;
  const std::byte* bytes;  // contiguous, at any alignment
};

// The result of ttrace::compare(), computed by `kernel`.
[[nodiscard]] Statistics compare_with(const StatisticsKernel& kernel,
                                      const TensorBytes& reference,
                                      const TensorBytes& candidate,
                                      std::int64_t count,
                                      std::int64_t first = 0);

}  // namespace ttrace
