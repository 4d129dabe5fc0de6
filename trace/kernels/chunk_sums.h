// The kernel that sums a tensor's slices: sum_slices() for memory of a GPU, equal to it in every
// bit where SliceDetail::kDifferences is asked for.
//
// A row's elements differ in the last index only. They are summed in chunks of kSliceChunk, in
// kSliceLanes interleaved lanes each. What the host makes of the sums of chunks is
// trace/sums/slices.h's business. Columns are added row by row, one thread for each of them.
#pragma once

#include "trace/base/host_device.h"
#include "trace/kernels/compare_pairs.h"
#include "trace/kernels/element.h"
#include "trace/kernels/grid.h"

#include <cstdint>

namespace ttrace {

inline constexpr std::int64_t kSliceChunk = 512;
// Whatever the width of a vector register, so that the instruction set changes no bit.
inline constexpr int kSliceLanes = 8;
inline constexpr int kChunksOfTeam = 16;
inline constexpr int kSliceThreads = kChunksOfTeam * kSliceLanes;

// Reference r, other side c, d = c - r. Over elements finite on both sides.
struct ChunkSums {
  double along_reference;     // sum r d
  double difference_squared;  // sum d^2
};

// Two tensors of rows of equal size.
struct RowPairs {
  ElementPairs pairs;
  std::int64_t row;  // elements of a row; pairs.count is a multiple of it

  [[nodiscard]] TTRACE_KERNEL std::int64_t chunks_of_row() const {
    return (row + kSliceChunk - 1) / kSliceChunk;
  }
  [[nodiscard]] TTRACE_KERNEL std::int64_t rows() const { return row == 0 ? 0 : pairs.count / row; }
  [[nodiscard]] TTRACE_KERNEL std::int64_t chunks() const { return rows() * chunks_of_row(); }
};

// Two numbers of one place; both are zero where one of them is not finite.
struct SlicePair {
  double reference;
  double difference;
};

TTRACE_KERNEL SlicePair slice_pair(const ElementPairs& pairs, std::int64_t index) {
  const double r = element_as_double(pairs.reference_type, pairs.reference, index);
  const double d = element_as_double(pairs.candidate_type, pairs.candidate, index) - r;
  if (!is_finite(r) || !is_finite(d)) {
    return {0.0, 0.0};
  }
  return {r, d};
}

// Adds up lanes in the order in which vectors of them are folded.
template <class Lanes>
TTRACE_KERNEL double total_of_lanes(const Lanes& lanes) {
  return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) +
         ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
}

struct SliceMemory {
  double along_reference[kChunksOfTeam][kSliceLanes];
  double difference_squared[kChunksOfTeam][kSliceLanes];
};

// The kernel: the sums of every chunk, row by row.
template <class Team>
TTRACE_HOST_DEVICE void sum_chunks(
    Grid teams, const Team& team, SliceMemory& memory, const RowPairs& rows, ChunkSums* sums) {
  const std::int64_t chunks = rows.chunks();
  const std::int64_t of_row = rows.chunks_of_row();
  for (std::int64_t first = teams.first * kChunksOfTeam; first < chunks;
       first += teams.stride * kChunksOfTeam) {
    team.each([&](int thread) {
      const int lane = thread % kSliceLanes;
      const std::int64_t chunk = first + thread / kSliceLanes;
      if (chunk >= chunks) {
        return;
      }
      const std::int64_t place = chunk % of_row * kSliceChunk;  // in the row
      const std::int64_t end = rows.row - place < kSliceChunk ? rows.row - place : kSliceChunk;
      const std::int64_t begin = chunk / of_row * rows.row + place;
      ChunkSums sum{};
      for (std::int64_t i = lane; i < end; i += kSliceLanes) {
        const SlicePair pair = slice_pair(rows.pairs, begin + i);
        sum.along_reference += pair.reference * pair.difference;
        sum.difference_squared += pair.difference * pair.difference;
      }
      memory.along_reference[thread / kSliceLanes][lane] = sum.along_reference;
      memory.difference_squared[thread / kSliceLanes][lane] = sum.difference_squared;
    });
    team.each([&](int thread) {
      if (thread < kChunksOfTeam && first + thread < chunks) {
        sums[first + thread] = {total_of_lanes(memory.along_reference[thread]),
                                total_of_lanes(memory.difference_squared[thread])};
      }
    });
  }
}

// The kernel: sum d^2 of every column, the slices of the last dimension.
TTRACE_HOST_DEVICE inline void sum_columns(Grid grid, const RowPairs& rows, double* sums) {
  for (std::int64_t column = grid.first; column < rows.row; column += grid.stride) {
    double sum = 0.0;
    for (std::int64_t row = 0; row < rows.rows(); ++row) {
      const SlicePair pair = slice_pair(rows.pairs, row * rows.row + column);
      sum += pair.difference * pair.difference;
    }
    sums[column] = sum;
  }
}

}  // namespace ttrace
