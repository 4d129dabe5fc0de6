// A tensor's sketch: some thousand numbers that stand for its bytes in comparisons.
//
//   const ttrace::Sketch r = ttrace::sketch_of(type, bytes, placement);
//   const double size = std::sqrt(ttrace::squared_distance(r, c));   // estimates ||r - c||
//
// The tensor is cut into a grid of blocks, and a block is kept as the sum of its elements, each
// with a random sign of its own: a count-sketch whose buckets are the blocks (Charikar, Chen and
// Farach-Colton 2002). It is linear: sketches of shards add up to that of the whole, those of
// addends to that of the sum, and the sketch of a difference is the difference of the sketches. The
// square of a block's signed sum estimates its sum of squares without bias; over a grid of k blocks
// of equal share the estimate of a norm is off by 1 / sqrt(2 k), standard deviation. Signs depend
// on the place in the logical tensor and on its shape alone, so all tensors of a shape can be
// compared.
//
// Beside them are the exact sums of squares of every row and column of blocks, the largest
// magnitude, what is not finite, and a digest of the bits, which are those of the logical tensor
// too: a sharded tensor's equal the single-device one's.
//
// Thread-safety: values and free functions without shared state; call from any thread.
#pragma once

#include "trace/base/instruction_set.h"
#include "trace/kernels/digest.h"
#include "trace/kernels/sketch_grid.h"

#include <ttrace/element_type.h>
#include <ttrace/placement.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace ttrace {

// The grid of a logical tensor: at most 64 x 64 blocks, more rows of them above 4,096 rows, as many
// in the other dimension as one lacks, and none below 256 elements. Blocks are powers of two wide,
// so that they end where heads and shards of such sizes do.
[[nodiscard]] SketchGrid sketch_grid(std::span<const std::int64_t> shape);

struct Sketch {
  SketchGrid grid{};
  // The blocks' signed sums, row by row: grid.row_blocks() x grid.column_blocks().
  std::vector<double> cells;
  // Exact sums of squares. Empty in a sum of addends, whose squares nobody saw.
  std::vector<double> row_squares;     // of every row of blocks
  std::vector<double> column_squares;  // of every column of blocks
  double largest = 0.0;                // magnitude of a finite element; of any addend in their sum
  std::uint64_t nonfinite = 0;         // elements, which count as zero above
  std::uint64_t nonfinite_places = 0;  // equal for equal sets of places
  Digest digest{};                     // of the bits of all elements by place; of addends: of each

  // Exact ||x||^2. Requires: it is no sum of addends.
  [[nodiscard]] double squares() const;
  // Estimates ||x||^2.
  [[nodiscard]] double estimated_squares() const;
};

// Whether tensors of the type have a sketch: floating ones but E8M0.
[[nodiscard]] bool has_sketch(ElementType type);

// The sketch of what a rank holds, in the logical tensor; with the placement's scale. `bytes` are
// its local tensor, or the flat range of it. Throws UsageError where their size is another one;
// requires has_sketch(type).
[[nodiscard]] Sketch sketch_of(ElementType type,
                               std::span<const std::byte> bytes,
                               const Placement& placement,
                               InstructionSet set = best_instruction_set());

// How files keep a sketch: its cells in f32, or in f64 of f32 and f64 tensors, row by row; the
// squares of its rows and columns of blocks in f64; largest in f64; nonfinite, nonfinite_places and
// the digest's halves in u64. Little-endian, packed; cells of f32 are filled up to 8 bytes.
[[nodiscard]] std::size_t stored_size(const SketchGrid& grid, ElementType type);
// Appends it. Requires: squares are there.
void store(const Sketch& sketch, ElementType type, std::vector<std::byte>& bytes);
// Requires: stored_size() bytes.
[[nodiscard]] Sketch stored_sketch(const SketchGrid& grid,
                                   ElementType type,
                                   std::span<const std::byte> bytes);

// Adds what another rank holds of the same tensor, disjoint from it. Requires equal grids.
void add_shard(const Sketch& shard, Sketch& sum);
// Adds another addend of the same tensor: the squares are lost. Requires equal grids.
void add_addend(const Sketch& addend, Sketch& sum);

// ||x||: exact, but estimated of a sum of addends, whose squares nobody saw.
[[nodiscard]] double norm_of(const Sketch& sketch);

// Estimates ||left - right||^2. Requires equal grids.
[[nodiscard]] double squared_distance(const Sketch& left, const Sketch& right);

// Estimates how far one element of left - right stands out, as one that was rounded the other way
// does: what the largest of k signed sums has beyond what chance makes of k equal ones, whose
// largest square is about 2 ln k times their mean. Requires equal grids.
[[nodiscard]] double outstanding_difference(const Sketch& left, const Sketch& right);

}  // namespace ttrace
