// The kernel of sketches: signed sums over the blocks of a grid, exact sums of squares and a
// digest, in one read of a tensor's bytes, on the host and on a GPU.
//
// An element counts with a sign that depends on its place in the logical tensor alone, so the
// sketches of shards add up to the sketch of the whole tensor, and those of addends to that of
// their sum. One hash gives the signs of a pack: kSketchPack elements of a row, independent of each
// other.
//
// A block is summed by up to kSketchThreads threads, each of which takes packs and rows at equal
// steps; their sums are added up in a tree. The order follows from the grid alone.
// Elements below 32 bits are summed in f32 and their squares as well, the others in f64; where
// magnitudes would leave the range of f32 squares, f64 does it again.
//
// Products are rounded before they are added: compile with -ffp-contract=off or --fmad=false.
#pragma once

#include "trace/base/host_device.h"
#include "trace/base/random.h"
#include "trace/kernels/grid.h"
#include "trace/kernels/sketch_column.h"
#include "trace/kernels/sketch_format.h"
#include "trace/kernels/sketch_grid.h"

#include <cstdint>
#include <cstring>

namespace ttrace {

inline constexpr int kSketchThreads = 512;  // of a team

// What is added up without rounding, in any order: modulo 2^64, but for the first.
struct SketchTotals {
  std::uint64_t largest;  // the magnitude's bits, of finite elements
  std::uint64_t low;      // the digest
  std::uint64_t high;
  std::uint64_t nonfinite;         // elements
  std::uint64_t nonfinite_places;  // a digest of where they lie
};

TTRACE_KERNEL void add_sketch_totals(const SketchTotals& from, SketchTotals& to) {
  to.largest = to.largest > from.largest ? to.largest : from.largest;
  to.low += from.low;
  to.high += from.high;
  to.nonfinite += from.nonfinite;
  to.nonfinite_places += from.nonfinite_places;
}

// What the threads of a team share.
template <class Value>
struct SketchMemory {
  Value signed_sums[kSketchThreads];
  double squares[kSketchThreads];
  SketchTotals totals[kSketchThreads];
};

// One thread's share of a block: rows first_row, first_row + lanes, ... below end_row, in the
// columns of one pack.
struct SketchShare {
  std::int64_t first_row;
  std::int64_t end_row;
  std::int64_t lanes;
  std::int64_t pack;

  [[nodiscard]] TTRACE_KERNEL std::int64_t rows() const {
    return (end_row - first_row + lanes - 1) / lanes;
  }
};

// Loads a pack of one row, with zeros for what the rank does not hold.
template <class Bits>
TTRACE_HOST_DEVICE SketchPack<Bits> load_pack(const SketchSource& source,
                                              std::int64_t row,
                                              std::int64_t pack) {
  Bits bits[kSketchPack];
  const SketchRun* const rows = source.of_rows.holding(row);
  for (int i = 0; i < kSketchPack; ++i) {
    bits[i] = 0;
    const std::int64_t column = pack * kSketchPack + i;
    const SketchRun* const columns = source.of_columns.holding(column);
    if (rows == nullptr || columns == nullptr) {
      continue;
    }
    const std::int64_t place = (row - rows->logical + rows->local) * source.columns + column -
                               columns->logical + columns->local - source.first;
    if (place >= 0 && place < source.count) {
      bits[i] = load_element<Bits>(source.data, place);
    }
  }
  SketchPack<Bits> result;
  memcpy(&result, bits, sizeof(result));
  return result;
}

// The packs of a tile that lie as evenly in memory as in the logical tensor: from the tile's first
// pack on, in all its rows.
struct EvenPacks {
  const unsigned char* first;
  std::int64_t packs;
  std::int64_t row_bytes;

  TTRACE_KERNEL EvenPacks(const SketchSource& source,
                          std::int64_t element_bytes,
                          std::int64_t first_row,
                          std::int64_t end_row,
                          std::int64_t first_pack)
      : first(nullptr), packs(0), row_bytes(source.columns * element_bytes) {
    const std::int64_t column = first_pack * kSketchPack;
    const SketchRun* const columns = source.of_columns.holding(column);
    const SketchRun* const rows = source.of_rows.holding(first_row);
    if (columns == nullptr || rows == nullptr || end_row > rows->logical + rows->extent) {
      return;
    }
    const std::int64_t shift = rows->local - rows->logical;
    const std::int64_t local_column = column - columns->logical + columns->local;
    const std::int64_t start = (first_row + shift) * source.columns + local_column - source.first;
    const std::int64_t last = (end_row - 1 + shift) * source.columns + local_column - source.first;
    std::int64_t length = columns->logical + columns->extent - column;
    length = source.count - last < length ? source.count - last : length;
    if (start < 0 || length < kSketchPack) {
      return;
    }
    packs = length / kSketchPack;
    first = static_cast<const unsigned char*>(source.data) + start * element_bytes;
  }
};

// The packs of one share: evenly spaced in memory and in the numbers of their hashes.
struct SketchWalk {
  const unsigned char* first;
  std::int64_t step;  // bytes
  std::uint32_t count;
  std::uint32_t number;  // of the first
  std::uint32_t number_step;
};

// What a share comes to.
template <class Value>
struct SketchSums {
  Value signed_sum;
  double squares;
  SketchTotals totals;
  bool is_accurate;  // else the sums, and what is not finite, must be found with more care
};

template <class Format>
TTRACE_KERNEL SketchSums<typename Format::Value> sums_of(const SketchColumn<Format>& column) {
  SketchSums<typename Format::Value> sums{};
  sums.signed_sum =
      SketchColumn<Format>::template total<typename Format::Value>(column.signed_sums);
  sums.squares = SketchColumn<Format>::template total<double>(column.squares);
  sums.totals.largest = column.largest_of_all();
  sums.totals.low = column.low;
  sums.totals.high = column.high;
  sums.is_accurate = column.is_accurate();
  return sums;
}

// How a thread adds up packs that are evenly spaced: as it is written. The host has the same for
// other instruction sets.
struct PlainWalk {
  template <class Format>
  TTRACE_KERNEL static void add(const SketchWalk& walk,
                                SketchKey key,
                                SketchSums<typename Format::Value>& sums) {
    const bool at_once = starts_pack(walk.first) && walk.step % kPackBytes == 0 &&
                         kSketchPack * sizeof(typename Format::Bits) >= kPackBytes;
    SketchColumn<Format> column{};
    at_once ? add_all<true>(walk, key, column) : add_all<false>(walk, key, column);
    sums = sums_of(column);
  }

 private:
  template <bool kAtOnce, class Format>
  TTRACE_KERNEL static void add_all(const SketchWalk& walk,
                                    SketchKey key,
                                    SketchColumn<Format>& column) {
    const unsigned char* place = walk.first;
    std::uint32_t number = walk.number;
    for (std::uint32_t i = 0; i < walk.count; ++i) {
      SketchPack<typename Format::Bits> pack;
      pack.template load<kAtOnce>(place);
      column.add(pack, key.hash(number));
      place += walk.step;
      number += walk.number_step;
    }
  }
};

// A share whose elements lie anywhere, or not at all.
template <class Format>
TTRACE_HOST_DEVICE void add_scattered(const SketchSource& source,
                                      const SketchGrid& grid,
                                      const SketchShare& share,
                                      SketchKey key,
                                      SketchSums<typename Format::Value>& sums) {
  SketchColumn<Format> column{};
  for (std::int64_t row = share.first_row; row < share.end_row; row += share.lanes) {
    const SketchPack<typename Format::Bits> pack =
        load_pack<typename Format::Bits>(source, row, share.pack);
    column.add(pack, key.hash(grid.number(row, share.pack)));
  }
  sums = sums_of(column);
}

// The sums of a share again: in f64, and without what is not finite, whose number and places it
// notes.
template <class Format>
TTRACE_HOST_DEVICE void add_carefully(const SketchSource& source,
                                      const SketchGrid& grid,
                                      const SketchShare& share,
                                      SketchKey key,
                                      SketchSums<typename Format::Value>& sums) {
  double signed_sum = 0.0;
  sums.squares = 0.0;
  sums.totals.largest = 0;
  for (std::int64_t row = share.first_row; row < share.end_row; row += share.lanes) {
    const SketchPack<typename Format::Bits> pack =
        load_pack<typename Format::Bits>(source, row, share.pack);
    const std::uint32_t hash = key.hash(grid.number(row, share.pack));
    for (int i = 0; i < kSketchPack; ++i) {
      const std::uint64_t magnitude = Format::magnitude(pack.at(i));
      if (magnitude >= Format::kOverflow) {
        sums.totals.nonfinite += 1;
        sums.totals.nonfinite_places += random_bits(hash, static_cast<std::uint64_t>(i));
        continue;
      }
      const auto value = static_cast<double>(Format::value(pack.at(i)));
      signed_sum += with_sign(value, hash << static_cast<unsigned>(i));
      sums.squares += value * value;
      sums.totals.largest = sums.totals.largest > magnitude ? sums.totals.largest : magnitude;
    }
  }
  sums.signed_sum = static_cast<typename Format::Value>(signed_sum);
}

// What one team sums at a time: a row of blocks, and in it as many blocks as its threads can take,
// but at least one. The threads of a block lie side by side: of each of its packs, one for every
// lane of rows.
struct SketchTiles {
  std::int64_t lanes;  // of rows
  std::int64_t packs_of_block;
  std::int64_t blocks;  // of a tile
  std::int64_t threads_of_block;
  std::int64_t tiles_of_row;
  std::int64_t count;

  TTRACE_KERNEL explicit SketchTiles(const SketchGrid& grid) {
    lanes = grid.row_shift >= 5 ? 4 : 1;
    packs_of_block = (std::int64_t{1} << grid.column_shift) / kSketchPack;
    const std::int64_t wanted = lanes * packs_of_block;
    threads_of_block = wanted < kSketchThreads ? wanted : std::int64_t{kSketchThreads};
    blocks = kSketchThreads / threads_of_block;
    tiles_of_row = (grid.column_blocks() + blocks - 1) / blocks;
    count = tiles_of_row * grid.row_blocks();
  }
};

// One of them.
struct SketchTile {
  std::int64_t first_row;
  std::int64_t end_row;
  std::int64_t blocks;
  std::int64_t first_cell;  // in the grid
  std::int64_t first_pack;
  std::int64_t end_pack;

  TTRACE_KERNEL SketchTile(const SketchGrid& grid, const SketchTiles& tiles, std::int64_t number) {
    const std::int64_t row_block = number / tiles.tiles_of_row;
    const std::int64_t past_row = (row_block + 1) << grid.row_shift;
    first_row = row_block << grid.row_shift;
    end_row = past_row < grid.rows ? past_row : grid.rows;
    const std::int64_t first_block = number % tiles.tiles_of_row * tiles.blocks;  // of its row
    const std::int64_t left = grid.column_blocks() - first_block;
    blocks = left < tiles.blocks ? left : tiles.blocks;
    first_cell = row_block * grid.column_blocks() + first_block;
    first_pack = first_block * tiles.packs_of_block;
    const std::int64_t past_pack = first_pack + blocks * tiles.packs_of_block;
    end_pack = past_pack < grid.packs() ? past_pack : grid.packs();
  }
};

// Adds up one thread's packs of a tile, one after another.
template <class Format, class Walk>
TTRACE_KERNEL void sum_thread(const SketchSource& source,
                              const SketchGrid& grid,
                              const SketchTiles& tiles,
                              const SketchTile& tile,
                              const EvenPacks& even,
                              int thread,
                              SketchMemory<typename Format::Value>& memory) {
  constexpr std::int64_t kPack = kSketchPack * std::int64_t{sizeof(typename Format::Bits)};
  const SketchKey key(grid);
  typename Format::Value signed_sum = 0;
  double squares = 0.0;
  SketchShare share{tile.first_row + thread % tiles.lanes, tile.end_row, tiles.lanes, 0};
  for (share.pack = tile.first_pack + thread / tiles.lanes;
       share.pack < tile.end_pack && share.first_row < share.end_row;
       share.pack += kSketchThreads / tiles.lanes) {
    SketchSums<typename Format::Value> sums;
    const std::int64_t number = share.pack - tile.first_pack;
    if (number < even.packs) {
      Walk::template add<Format>(
          {even.first + (share.first_row - tile.first_row) * even.row_bytes + number * kPack,
           even.row_bytes * tiles.lanes,
           static_cast<std::uint32_t>(share.rows()),
           grid.number(share.first_row, share.pack),
           static_cast<std::uint32_t>(grid.packs() * tiles.lanes)},
          key,
          sums);
    } else {
      add_scattered<Format>(source, grid, share, key, sums);
    }
    if (!sums.is_accurate) {
      add_carefully<Format>(source, grid, share, key, sums);
    }
    signed_sum += sums.signed_sum;
    squares += sums.squares;
    add_sketch_totals(sums.totals, memory.totals[thread]);
  }
  memory.signed_sums[thread] = signed_sum;
  memory.squares[thread] = squares;
}

// Calls `add(i, j)` for all pairs in which a tree adds number j to number i, until the sums of
// `group` neighbours lie at the first of them.
template <class Team, class Add>
TTRACE_HOST_DEVICE void add_in_tree(const Team& team,
                                    std::int64_t count,
                                    std::int64_t group,
                                    const Add& add) {
  for (std::int64_t width = 1; width < group; width *= 2) {
    team.each([&](int thread) {
      for (std::int64_t at = thread * 2 * width; at < count;
           at += std::int64_t{kSketchThreads} * 2 * width) {
        add(at, at + width);
      }
    });
  }
}

// The kernel: writes the signed sum and the squares of every block, row by row, and calls
// `add(totals)` once, on one thread. Blocks of which the rank holds no row are left as they are.
template <class Format, class Walk, class Team, class Add>
TTRACE_HOST_DEVICE void sum_sketch(Grid teams,
                                   const Team& team,
                                   SketchMemory<typename Format::Value>& memory,
                                   const SketchGrid& grid,
                                   const SketchSource& source,
                                   typename Format::Value* signed_sums,
                                   double* squares,
                                   const Add& add) {
  const SketchTiles tiles(grid);
  team.each([&](int thread) { memory.totals[thread] = SketchTotals{}; });
  for (std::int64_t number = teams.first; number < tiles.count; number += teams.stride) {
    const SketchTile tile(grid, tiles, number);
    if (!source.of_rows.meets(tile.first_row, tile.end_row)) {
      continue;
    }
    const EvenPacks even(source,
                         std::int64_t{sizeof(typename Format::Bits)},
                         tile.first_row,
                         tile.end_row,
                         tile.first_pack);
    const std::int64_t threads = tile.blocks * tiles.threads_of_block;
    team.each([&](int thread) {
      if (thread < threads) {
        sum_thread<Format, Walk>(source, grid, tiles, tile, even, thread, memory);
      }
    });
    add_in_tree(team, threads, tiles.threads_of_block, [&](std::int64_t to, std::int64_t from) {
      memory.signed_sums[to] += memory.signed_sums[from];
      memory.squares[to] += memory.squares[from];
    });
    team.each([&](int thread) {
      if (thread < tile.blocks) {
        const std::int64_t first = thread * tiles.threads_of_block;
        signed_sums[tile.first_cell + thread] = memory.signed_sums[first];
        squares[tile.first_cell + thread] = memory.squares[first];
      }
    });
  }
  add_in_tree(team, kSketchThreads, kSketchThreads, [&](std::int64_t to, std::int64_t from) {
    add_sketch_totals(memory.totals[from], memory.totals[to]);
  });
  team.each([&](int thread) {
    if (thread == 0) {
      add(memory.totals[0]);
    }
  });
}

}  // namespace ttrace
