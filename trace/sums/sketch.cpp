#include "trace/sums/sketch.h"

#include "trace/base/instruction_set.h"
#include "trace/kernels/sketch.h"
#include "trace/place/boxes.h"

#include <ttrace/error.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <utility>

namespace ttrace {
namespace {

constexpr std::int64_t kMostBlocks = 64;       // of rows, and of columns
constexpr std::int64_t kFewestElements = 256;  // of a block

// The walks over packs, one for each instruction set: one loop, compiled several times.
struct BaselineWalk {
  template <class Format>
  [[gnu::noinline]] static void add(const SketchWalk& walk,
                                    SketchKey key,
                                    SketchSums<typename Format::Value>& sums) {
    PlainWalk::add<Format>(walk, key, sums);
  }
};
struct Avx2Walk {
  template <class Format>
  TTRACE_AVX2 [[gnu::noinline]] static void add(const SketchWalk& walk,
                                                SketchKey key,
                                                SketchSums<typename Format::Value>& sums) {
    PlainWalk::add<Format>(walk, key, sums);
  }
};
struct Avx512Walk {
  template <class Format>
  TTRACE_AVX512 [[gnu::noinline]] static void add(const SketchWalk& walk,
                                                  SketchKey key,
                                                  SketchSums<typename Format::Value>& sums) {
    PlainWalk::add<Format>(walk, key, sums);
  }
};

// Adds what one source holds.
template <class Format, class Walk>
void add_source(const SketchSource& source, Sketch& sketch) {
  using Value = typename Format::Value;
  const auto memory = std::make_unique<SketchMemory<Value>>();
  const auto cells = static_cast<std::size_t>(sketch.grid.cells());
  std::vector<Value> signed_sums(cells);
  std::vector<double> squares(cells);
  SketchTotals all{};
  sum_sketch<Format, Walk>(Grid{0, 1},
                           HostTeam<kSketchThreads>{},
                           *memory,
                           sketch.grid,
                           source,
                           signed_sums.data(),
                           squares.data(),
                           [&](const SketchTotals& totals) { add_sketch_totals(totals, all); });
  const auto columns = static_cast<std::size_t>(sketch.grid.column_blocks());
  for (std::size_t cell = 0; cell < cells; ++cell) {
    sketch.cells[cell] += static_cast<double>(signed_sums[cell]);
    sketch.row_squares[cell / columns] += squares[cell];
    sketch.column_squares[cell % columns] += squares[cell];
  }
  const auto largest =
      static_cast<double>(Format::value(static_cast<typename Format::Bits>(all.largest)));
  sketch.largest = std::max(sketch.largest, largest);
  sketch.nonfinite += all.nonfinite;
  sketch.nonfinite_places += all.nonfinite_places;
  add_digest({all.low, all.high}, sketch.digest);
}

// The runs of a placement's rows: of all dimensions but the last, which are flattened.
std::vector<SketchRun> runs_of_rows(std::span<const DimPlacement> dims) {
  std::vector<SketchRun> runs;
  for_each_run(dims.first(dims.size() - 1), [&](Offsets offsets, std::int64_t length) {
    runs.push_back({offsets.logical, offsets.local, length});
  });
  return runs;
}

std::vector<SketchRun> runs_of_columns(const DimPlacement& dim) {
  std::vector<SketchRun> runs;
  for (const Segment& segment : dim.segments) {
    runs.push_back({segment.logical, segment.local, segment.extent});
  }
  return runs;
}

// The runs in groups that a source can have.
std::vector<SketchRuns> grouped(std::vector<SketchRun> runs) {
  std::sort(runs.begin(), runs.end(), [](const SketchRun& left, const SketchRun& right) {
    return left.logical < right.logical;
  });
  std::vector<SketchRuns> groups;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (i % kSketchRuns == 0) {
      groups.push_back({});
    }
    groups.back().runs[groups.back().count++] = runs[i];
  }
  return groups;
}

Sketch empty_sketch(const SketchGrid& grid) {
  Sketch sketch;
  sketch.grid = grid;
  sketch.cells.resize(static_cast<std::size_t>(sketch.grid.cells()));
  sketch.row_squares.resize(static_cast<std::size_t>(sketch.grid.row_blocks()));
  sketch.column_squares.resize(static_cast<std::size_t>(sketch.grid.column_blocks()));
  return sketch;
}

void scale_by(double scale, Sketch& sketch) {
  for (double& cell : sketch.cells) {
    cell *= scale;
  }
  for (std::vector<double>* const squares : {&sketch.row_squares, &sketch.column_squares}) {
    for (double& square : *squares) {
      square *= scale * scale;
    }
  }
  sketch.largest *= std::abs(scale);
}

void add_values(const std::vector<double>& from, std::vector<double>& to) {
  std::transform(to.begin(), to.end(), from.begin(), to.begin(), std::plus<>());
}

void add_common(const Sketch& from, Sketch& to) {
  add_values(from.cells, to.cells);
  to.largest = std::max(to.largest, from.largest);
  to.nonfinite += from.nonfinite;
  to.nonfinite_places += from.nonfinite_places;
  add_digest(from.digest, to.digest);
}

bool has_wide_cells(ElementType type) {
  return type == ElementType::kF32 || type == ElementType::kF64;
}

std::size_t bytes_of_cells(const SketchGrid& grid, ElementType type) {
  const auto cells = static_cast<std::size_t>(grid.cells());
  return has_wide_cells(type) ? cells * sizeof(double) : (cells + 1) / 2 * sizeof(double);
}

// What comes after the squares.
struct StoredTotals {
  double largest;
  std::uint64_t nonfinite;
  std::uint64_t nonfinite_places;
  Digest digest;
};

template <class Value>
void append(const Value* values, std::size_t count, std::vector<std::byte>& bytes) {
  const auto* const first = reinterpret_cast<const std::byte*>(values);
  bytes.insert(bytes.end(), first, first + count * sizeof(Value));
}

// Takes values from the front of `bytes`.
template <class Value>
void take(std::span<const std::byte>& bytes, Value* values, std::size_t count) {
  if (count > 0) {
    std::memcpy(values, bytes.data(), count * sizeof(Value));
  }
  bytes = bytes.subspan(count * sizeof(Value));
}

}  // namespace

SketchGrid sketch_grid(std::span<const std::int64_t> shape) {
  SketchGrid grid{1, 1, 0, 3};
  if (!shape.empty()) {
    grid.columns = shape.back();
    const auto leading = shape.first(shape.size() - 1);
    grid.rows =
        std::accumulate(leading.begin(), leading.end(), std::int64_t{1}, std::multiplies<>());
  }
  const std::int64_t row_goal = kMostBlocks * (grid.rows > 4 * 64 * kMostBlocks ? 4
                                               : grid.rows > 64 * kMostBlocks   ? 2
                                                                                : 1);
  while (grid.cells() > row_goal * kMostBlocks ||
         (grid.cells() > 1 && (std::int64_t{1} << static_cast<unsigned>(
                                   grid.row_shift + grid.column_shift)) < kFewestElements)) {
    const bool too_many_rows = grid.row_blocks() * kMostBlocks > grid.column_blocks() * row_goal;
    const bool one_column = grid.column_blocks() == 1;
    ++(grid.row_blocks() > 1 && (too_many_rows || one_column) ? grid.row_shift : grid.column_shift);
  }
  return grid;
}

double Sketch::squares() const {
  return std::accumulate(row_squares.begin(), row_squares.end(), 0.0);
}

double Sketch::estimated_squares() const {
  return std::inner_product(cells.begin(), cells.end(), cells.begin(), 0.0);
}

bool has_sketch(ElementType type) {
  return with_sketch_format(type, [](auto) {});
}

Sketch sketch_of(ElementType type,
                 std::span<const std::byte> bytes,
                 const Placement& placement,
                 InstructionSet set) {
  const std::vector<DimPlacement>& dims = placement.dims;
  Sketch sketch = empty_sketch(sketch_grid(placement.logical_shape()));
  SketchSource source{};
  source.data = bytes.data();
  source.columns = dims.empty() ? 1 : dims.back().local_size;
  source.count = 1;
  for (const DimPlacement& dim : dims) {
    source.count *= dim.local_size;
  }
  if (placement.flat) {
    source.first = placement.flat->first;
    source.count = placement.flat->count;
  }
  const std::size_t expected = static_cast<std::size_t>(source.count) * element_size(type);
  TTRACE_CHECK(bytes.size() == expected,
               UsageError,
               "a tensor of ",
               bytes.size(),
               " bytes cannot lie where ",
               expected,
               " are placed.");
  const DimPlacement scalar{1, 1, {{0, 0, 1}}};
  const std::span<const DimPlacement> placed =
      dims.empty() ? std::span(&scalar, 1) : std::span(dims);
  for (const SketchRuns& rows : grouped(runs_of_rows(placed))) {
    for (const SketchRuns& columns : grouped(runs_of_columns(placed.back()))) {
      source.of_rows = rows;
      source.of_columns = columns;
      with_sketch_format(type, [&](auto format) {
        using Format = decltype(format);
        fastest(add_source<Format, BaselineWalk>,
                add_source<Format, Avx2Walk>,
                add_source<Format, Avx512Walk>,
                set)(source, sketch);
      });
    }
  }
  if (placement.scale != 1.0) {
    scale_by(placement.scale, sketch);
  }
  return sketch;
}

std::size_t stored_size(const SketchGrid& grid, ElementType type) {
  return bytes_of_cells(grid, type) +
         static_cast<std::size_t>(grid.row_blocks() + grid.column_blocks()) * sizeof(double) +
         sizeof(StoredTotals);
}

void store(const Sketch& sketch, ElementType type, std::vector<std::byte>& bytes) {
  const std::size_t end = bytes.size() + bytes_of_cells(sketch.grid, type);
  if (has_wide_cells(type)) {
    append(sketch.cells.data(), sketch.cells.size(), bytes);
  } else {
    const std::vector<float> cells(sketch.cells.begin(), sketch.cells.end());
    append(cells.data(), cells.size(), bytes);
  }
  bytes.resize(end);
  append(sketch.row_squares.data(), sketch.row_squares.size(), bytes);
  append(sketch.column_squares.data(), sketch.column_squares.size(), bytes);
  const StoredTotals totals{
      sketch.largest, sketch.nonfinite, sketch.nonfinite_places, sketch.digest};
  append(&totals, 1, bytes);
}

Sketch stored_sketch(const SketchGrid& grid, ElementType type, std::span<const std::byte> bytes) {
  Sketch sketch = empty_sketch(grid);
  std::span<const std::byte> cells = bytes.first(bytes_of_cells(grid, type));
  bytes = bytes.subspan(cells.size());
  if (has_wide_cells(type)) {
    take(cells, sketch.cells.data(), sketch.cells.size());
  } else {
    std::vector<float> narrow(sketch.cells.size());
    take(cells, narrow.data(), narrow.size());
    sketch.cells.assign(narrow.begin(), narrow.end());
  }
  take(bytes, sketch.row_squares.data(), sketch.row_squares.size());
  take(bytes, sketch.column_squares.data(), sketch.column_squares.size());
  StoredTotals totals{};
  take(bytes, &totals, 1);
  sketch.largest = totals.largest;
  sketch.nonfinite = totals.nonfinite;
  sketch.nonfinite_places = totals.nonfinite_places;
  sketch.digest = totals.digest;
  return sketch;
}

void add_shard(const Sketch& shard, Sketch& sum) {
  add_common(shard, sum);
  add_values(shard.row_squares, sum.row_squares);
  add_values(shard.column_squares, sum.column_squares);
}

void add_addend(const Sketch& addend, Sketch& sum) {
  add_common(addend, sum);
  sum.row_squares.clear();
  sum.column_squares.clear();
}

double norm_of(const Sketch& sketch) {
  return std::sqrt(sketch.row_squares.empty() ? sketch.estimated_squares() : sketch.squares());
}

double squared_distance(const Sketch& left, const Sketch& right) {
  return std::transform_reduce(left.cells.begin(),
                               left.cells.end(),
                               right.cells.begin(),
                               0.0,
                               std::plus<>(),
                               [](double l, double r) { return (l - r) * (l - r); });
}

double outstanding_difference(const Sketch& left, const Sketch& right) {
  double largest = 0.0;
  for (std::size_t i = 0; i < left.cells.size(); ++i) {
    largest = std::max(largest, std::abs(left.cells[i] - right.cells[i]));
  }
  const auto cells = static_cast<double>(left.cells.size());
  const double chance = 2.0 * std::log(cells) * squared_distance(left, right) / cells;
  return std::sqrt(std::max(0.0, largest * largest - chance));
}

}  // namespace ttrace
