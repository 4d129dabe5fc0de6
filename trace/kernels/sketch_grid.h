// The grid of a sketch, the signs of its elements, and where a rank's elements lie in it; on the
// host and on a GPU.
//
// Grid, key and hash are part of the file format.
#pragma once

#include "trace/base/host_device.h"
#include "trace/base/random.h"
#include "trace/kernels/noise.h"

#include <cstdint>

namespace ttrace {

inline constexpr int kSketchPack = 8;   // elements of a row whose signs are one hash
inline constexpr int kSketchRuns = 16;  // of a dimension, that a source may have

// How a logical tensor is cut: rows are its dimensions but the last, flattened; columns its last.
// Blocks have 2^row_shift rows and 2^column_shift columns, at least a pack; the last ones fewer.
struct SketchGrid {
  std::int64_t rows;
  std::int64_t columns;
  int row_shift;
  int column_shift;

  [[nodiscard]] TTRACE_KERNEL std::int64_t row_blocks() const {
    return (rows + (std::int64_t{1} << row_shift) - 1) >> row_shift;
  }
  [[nodiscard]] TTRACE_KERNEL std::int64_t column_blocks() const {
    return (columns + (std::int64_t{1} << column_shift) - 1) >> column_shift;
  }
  [[nodiscard]] TTRACE_KERNEL std::int64_t cells() const { return row_blocks() * column_blocks(); }
  // Of one block.
  [[nodiscard]] TTRACE_KERNEL std::int64_t rows_of(std::int64_t block) const {
    const std::int64_t left = rows - (block << row_shift);
    return left < std::int64_t{1} << row_shift ? left : std::int64_t{1} << row_shift;
  }
  [[nodiscard]] TTRACE_KERNEL std::int64_t columns_of(std::int64_t block) const {
    const std::int64_t left = columns - (block << column_shift);
    return left < std::int64_t{1} << column_shift ? left : std::int64_t{1} << column_shift;
  }
  [[nodiscard]] TTRACE_KERNEL std::int64_t packs() const {  // of a row
    return (columns + kSketchPack - 1) / kSketchPack;
  }
  // Of a pack, modulo 2^32: what its hash depends on.
  [[nodiscard]] TTRACE_KERNEL std::uint32_t number(std::int64_t row, std::int64_t pack) const {
    return static_cast<std::uint32_t>(row * packs() + pack);
  }
};

// Indices [logical, logical + extent) lie at local indices [local, local + extent).
struct SketchRun {
  std::int64_t logical;
  std::int64_t local;
  std::int64_t extent;
};

// One dimension of what a rank holds. Runs are sorted by `logical`.
struct SketchRuns {
  int count;
  SketchRun runs[kSketchRuns];

  // The run that holds a logical index; null if none does.
  [[nodiscard]] TTRACE_KERNEL const SketchRun* holding(std::int64_t index) const {
    for (int i = 0; i < count; ++i) {
      if (index >= runs[i].logical && index < runs[i].logical + runs[i].extent) {
        return &runs[i];
      }
    }
    return nullptr;
  }
  // Whether there are any of [first, end).
  [[nodiscard]] TTRACE_KERNEL bool meets(std::int64_t first, std::int64_t end) const {
    for (int i = 0; i < count; ++i) {
      if (first < runs[i].logical + runs[i].extent && end > runs[i].logical) {
        return true;
      }
    }
    return false;
  }
};

// Where a rank's elements lie in the logical tensor. Element [row, column] of its local tensor is
// number row * columns + column, and the rank holds `count` from number `first` on.
struct SketchSource {
  const void* data;  // element number `first`
  std::int64_t columns;
  std::int64_t first;
  std::int64_t count;
  SketchRuns of_rows;
  SketchRuns of_columns;
};

// Keys of the hash, from the logical shape alone.
struct SketchKey {
  std::uint32_t low;
  std::uint32_t high;

  TTRACE_KERNEL explicit SketchKey(const SketchGrid& grid) {
    const std::uint64_t bits = random_bits(scramble(static_cast<std::uint64_t>(grid.rows)),
                                           static_cast<std::uint64_t>(grid.columns));
    low = static_cast<std::uint32_t>(bits);
    high = static_cast<std::uint32_t>(bits >> 32U);
  }
  // The signs of the pack with this number are the upper bits of this.
  [[nodiscard]] TTRACE_KERNEL std::uint32_t hash(std::uint32_t number) const {
    return noise_hash(number, low, high);
  }
};

}  // namespace ttrace
