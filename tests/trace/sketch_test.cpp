// Sketches: linear, the same for every way to share out the work, and as exact as they claim.
#include "trace/sums/sketch.h"

#include "support/tensor_bytes.h"
#include "trace/instruction_sets.h"
#include "trace/kernels/sketch.h"
#include "trace/place/boxes.h"

#include <ttrace/error.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <random>
#include <string>

namespace ttrace::testing {
namespace {

constexpr int kGrids[] = {1, 2, 3, 7, 64, 256, 1000};  // teams
constexpr ElementType kTypes[] = {ElementType::kF64,
                                  ElementType::kF32,
                                  ElementType::kF16,
                                  ElementType::kBF16,
                                  ElementType::kE4M3,
                                  ElementType::kE5M2,
                                  ElementType::kE2M1};
const std::vector<std::vector<std::int64_t>> kShapes = {{},
                                                        {1},
                                                        {7},
                                                        {8},
                                                        {100'003},
                                                        {3, 5},
                                                        {64, 64},
                                                        {257, 129},
                                                        {2, 3, 4, 40},
                                                        {5000, 8},
                                                        {4, 9000}};

std::int64_t elements_of(const std::vector<std::int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

std::span<const std::byte> bytes_of(const TensorAt& tensor) {
  return {static_cast<const std::byte*>(tensor.data()), static_cast<std::size_t>(tensor.size())};
}

Sketch sketch_of_whole(const TensorAt& tensor, const std::vector<std::int64_t>& shape) {
  return sketch_of(tensor.type, bytes_of(tensor), whole(shape));
}

void expect_same_entries(const std::vector<double>& left, const std::vector<double>& right) {
  ASSERT_EQ(left.size(), right.size());
  for (std::size_t i = 0; i < left.size(); ++i) {
    expect_same_bits(left[i], right[i], "an entry");
  }
}

void expect_same_sketch(const Sketch& left, const Sketch& right) {
  expect_same_entries(left.cells, right.cells);
  expect_same_entries(left.row_squares, right.row_squares);
  expect_same_entries(left.column_squares, right.column_squares);
  expect_same_bits(left.largest, right.largest, "largest");
  EXPECT_EQ(left.nonfinite, right.nonfinite);
  EXPECT_EQ(left.nonfinite_places, right.nonfinite_places);
  EXPECT_TRUE(left.digest == right.digest);
}

// The kernel's sums over a whole tensor, shared out among `teams`, the last first.
template <class Format>
struct KernelSums {
  KernelSums(int teams, const TensorAt& tensor, const SketchGrid& grid)
      : signed_sums(static_cast<std::size_t>(grid.cells())), squares(signed_sums.size()) {
    SketchSource source{tensor.data(), grid.columns, 0, tensor.count, {}, {}};
    source.of_rows = {1, {{0, 0, grid.rows}}};
    source.of_columns = {1, {{0, 0, grid.columns}}};
    const auto memory = std::make_unique<SketchMemory<typename Format::Value>>();
    for (int team = teams; team-- > 0;) {
      sum_sketch<Format, PlainWalk>(
          Grid{team, teams},
          HostTeam<kSketchThreads>(),
          *memory,
          grid,
          source,
          signed_sums.data(),
          squares.data(),
          [&](const SketchTotals& totals) { add_sketch_totals(totals, all); });
    }
  }

  std::vector<typename Format::Value> signed_sums;
  std::vector<double> squares;
  SketchTotals all{};
};

TEST(SketchKernel, EveryGridGivesTheBitsOfTheHost) {
  for (const ElementType type : kTypes) {
    for (const std::vector<std::int64_t>& shape : kShapes) {
      const TensorAt tensor(type, normal_values(elements_of(shape), 3));
      const Sketch expected = sketch_of_whole(tensor, shape);
      with_sketch_format(type, [&](auto format) {
        for (const int teams : kGrids) {
          SCOPED_TRACE(std::string(name_of(type)) + ", " + std::to_string(tensor.count) +
                       " elements, " + std::to_string(teams) + " teams");
          const KernelSums<decltype(format)> sums(teams, tensor, expected.grid);
          expect_same_entries({sums.signed_sums.begin(), sums.signed_sums.end()}, expected.cells);
          EXPECT_EQ(sums.all.low, expected.digest.low);
          EXPECT_EQ(sums.all.high, expected.digest.high);
          EXPECT_EQ(sums.all.nonfinite, 0U);
        }
      });
    }
  }
}

TEST(Sketch, EveryInstructionSetGivesTheSameBits) {
  for (const ElementType type : kTypes) {
    for (const std::vector<std::int64_t>& shape : kShapes) {
      std::vector<double> values = normal_values(elements_of(shape), 4);
      values.front() = std::numeric_limits<double>::quiet_NaN();
      const TensorAt tensor(type, values, 6);
      const Sketch baseline =
          sketch_of(type, bytes_of(tensor), whole(shape), InstructionSet::kBaseline);
      for (const InstructionSet set : sets_of_this_processor()) {
        expect_same_sketch(sketch_of(type, bytes_of(tensor), whole(shape), set), baseline);
      }
    }
  }
}

// A list of cuts of [0, size), of which a rank holds every `ranks`-th piece in an order of its own.
DimPlacement random_dimension(std::int64_t size, int rank, int ranks, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::int64_t> cuts = {0, size};
  const std::uint64_t pieces = 1 + random() % 5;
  for (std::uint64_t i = 1; i < pieces * static_cast<std::uint64_t>(ranks); ++i) {
    cuts.push_back(static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(size + 1)));
  }
  std::sort(cuts.begin(), cuts.end());
  DimPlacement dim{0, size, {}};
  std::vector<Segment> segments;
  for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
    if (cuts[i] < cuts[i + 1] &&
        random() % static_cast<std::uint64_t>(ranks) == static_cast<std::uint64_t>(rank)) {
      segments.push_back({0, cuts[i], cuts[i + 1] - cuts[i]});
    }
  }
  std::mt19937_64 order(seed + 1 + static_cast<std::uint64_t>(rank));
  std::shuffle(segments.begin(), segments.end(), order);
  for (Segment& segment : segments) {
    dim.local_size += static_cast<std::int64_t>(order() % 3);  // padding
    segment.local = dim.local_size;
    dim.local_size += segment.extent;
  }
  dim.segments = std::move(segments);
  return dim;
}

// What a rank holds of a whole tensor of doubles; padding is NaN.
std::vector<double> held_by(const Placement& placement, const std::vector<double>& whole_values) {
  std::int64_t size = 1;
  for (const DimPlacement& dim : placement.dims) {
    size *= dim.local_size;
  }
  std::vector<double> local(static_cast<std::size_t>(placement.flat ? placement.flat->count : size),
                            std::numeric_limits<double>::quiet_NaN());
  for_each_run(placement, [&](Offsets offsets, std::int64_t length) {
    std::copy_n(whole_values.begin() + offsets.logical, length, local.begin() + offsets.local);
  });
  return local;
}

void join(Sketch part, Sketch& sum) {
  if (sum.cells.empty()) {
    sum = std::move(part);
  } else {
    add_shard(part, sum);
  }
}

struct Tolerances {
  ElementType type;
  double relative;  // to the norm of a cell of this tensor, on average
};

void expect_adds_up(const Sketch& sum, const Sketch& expected, double tolerance) {
  const double norm = std::sqrt(expected.squares());
  ASSERT_EQ(sum.cells.size(), expected.cells.size());
  for (std::size_t i = 0; i < sum.cells.size(); ++i) {
    ASSERT_NEAR(sum.cells[i], expected.cells[i], tolerance * norm);
  }
  for (std::size_t i = 0; i < sum.row_squares.size(); ++i) {
    ASSERT_NEAR(sum.row_squares[i], expected.row_squares[i], tolerance * norm * norm);
  }
  for (std::size_t i = 0; i < sum.column_squares.size(); ++i) {
    ASSERT_NEAR(sum.column_squares[i], expected.column_squares[i], tolerance * norm * norm);
  }
  EXPECT_EQ(sum.largest, expected.largest);
  EXPECT_TRUE(sum.digest == expected.digest);
  EXPECT_EQ(sum.nonfinite, expected.nonfinite);
  EXPECT_EQ(sum.nonfinite_places, expected.nonfinite_places);
}

// Adds up what `ranks` ranks hold and compares it with the whole.
void try_shards(const std::vector<std::int64_t>& shape, std::uint64_t seed, Tolerances how) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  const int ranks = 1 + static_cast<int>(random() % 4);
  const std::size_t cut_dim = random() % shape.size();
  const std::vector<double> values = normal_values(elements_of(shape), static_cast<unsigned>(seed));
  const TensorAt tensor(how.type, values);
  std::vector<double> stored(values.size());
  to_double(how.type, tensor.data(), tensor.count, stored.data());
  const Sketch expected = sketch_of_whole(tensor, shape);
  Sketch sum;
  for (int rank = 0; rank < ranks; ++rank) {
    Placement placement = whole(shape);
    placement.dims[cut_dim] = random_dimension(shape[cut_dim], rank, ranks, seed);
    const TensorAt shard(how.type, held_by(placement, stored));
    join(sketch_of(how.type, bytes_of(shard), placement), sum);
  }
  expect_adds_up(sum, expected, how.relative);
}

TEST(Sketch, ShardsOfTenThousandRandomPlacementsAddUpToTheWhole) {
  const std::vector<std::vector<std::int64_t>> shapes = {{300}, {17, 40}, {6, 5, 24}, {65, 33}};
  constexpr Tolerances kHow[] = {{ElementType::kF64, 1e-12},
                                 {ElementType::kF32, 1e-12},
                                 {ElementType::kBF16, 1e-6},
                                 {ElementType::kE4M3, 1e-6}};
  for (std::uint64_t seed = 0; seed < 10'000; ++seed) {
    try_shards(shapes[seed % shapes.size()], seed, kHow[seed / shapes.size() % std::size(kHow)]);
    if (HasFatalFailure() || HasNonfatalFailure()) {
      return;
    }
  }
}

TEST(Sketch, FlatRangesAddUpToTheWhole) {
  const std::vector<std::int64_t> shape = {37, 50};
  const std::vector<double> values = normal_values(elements_of(shape), 5);
  const TensorAt tensor(ElementType::kF32, values);
  std::vector<double> stored(values.size());
  to_double(tensor.type, tensor.data(), tensor.count, stored.data());
  Sketch sum;
  const std::vector<std::int64_t> cuts = {0, 3, 777, 778, 1850};
  for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
    Placement placement = whole(shape);
    placement.flat = FlatRange{cuts[i], cuts[i + 1] - cuts[i]};
    const TensorAt part(tensor.type, held_by(placement, stored));
    join(sketch_of(part.type, bytes_of(part), placement), sum);
  }
  expect_adds_up(sum, sketch_of_whole(tensor, shape), 1e-12);
}

TEST(Sketch, AddendsAndAScaleAddUpButForTheSquares) {
  const std::vector<std::int64_t> shape = {40, 64};
  const std::vector<double> first = normal_values(elements_of(shape), 6);
  const std::vector<double> second = normal_values(elements_of(shape), 7);
  std::vector<double> total(first.size());
  std::transform(first.begin(), first.end(), second.begin(), total.begin(), [](double a, double b) {
    return 0.5 * (a + b);
  });
  Placement placement = whole(shape);
  placement.scale = 0.5;
  const TensorAt one(ElementType::kF64, first);
  const TensorAt other(ElementType::kF64, second);
  Sketch sum = sketch_of(one.type, bytes_of(one), placement);
  add_addend(sketch_of(other.type, bytes_of(other), placement), sum);
  const Sketch expected = sketch_of_whole(TensorAt(ElementType::kF64, total), shape);
  for (std::size_t i = 0; i < sum.cells.size(); ++i) {
    EXPECT_NEAR(sum.cells[i], expected.cells[i], 1e-12);
  }
  EXPECT_TRUE(sum.row_squares.empty());
}

TEST(Sketch, SquaresAreExactAndTheirEstimateIsAsGoodAsTheGridSays) {
  const std::vector<std::int64_t> shape = {1024, 1024};  // 4,096 blocks
  double sum = 0.0;
  double squares = 0.0;
  constexpr int kTries = 40;
  for (int i = 0; i < kTries; ++i) {
    const std::vector<double> values =
        normal_values(elements_of(shape), static_cast<unsigned>(100 + i));
    const Sketch sketch = sketch_of_whole(TensorAt(ElementType::kF64, values), shape);
    ASSERT_EQ(sketch.cells.size(), 4096U);
    const double exact = std::inner_product(values.begin(), values.end(), values.begin(), 0.0);
    ASSERT_NEAR(sketch.squares(), exact, 1e-9 * exact);
    const double ratio = std::sqrt(sketch.estimated_squares() / exact);
    sum += ratio;
    squares += (ratio - 1.0) * (ratio - 1.0);
  }
  EXPECT_NEAR(sum / kTries, 1.0, 4.0 * 0.011 / std::sqrt(kTries));
  // Chi-squared with 40 degrees of freedom: beyond these bounds once in 10,000.
  EXPECT_GT(std::sqrt(squares / kTries), 0.011 * 0.6);
  EXPECT_LT(std::sqrt(squares / kTries), 0.011 * 1.45);
}

// A difference of rank 1, as bugs leave them: signs of rows times signs of columns would be blind.
TEST(Sketch, ADifferenceOfLowRankIsEstimatedAsWellAsAnyOther) {
  const std::vector<std::int64_t> shape = {1024, 1024};
  const std::vector<double> rows = normal_values(1024, 8);
  double squares = 0.0;
  constexpr int kTries = 40;
  for (int i = 0; i < kTries; ++i) {
    const std::vector<double> columns = normal_values(1024, static_cast<unsigned>(200 + i));
    std::vector<double> values;
    for (const double row : rows) {
      for (const double column : columns) {
        values.push_back(row * column);
      }
    }
    const Sketch sketch = sketch_of_whole(TensorAt(ElementType::kF64, values), shape);
    const double ratio = std::sqrt(sketch.estimated_squares() / sketch.squares());
    squares += (ratio - 1.0) * (ratio - 1.0);
  }
  EXPECT_LT(std::sqrt(squares / kTries), 0.035);
}

TEST(Sketch, BlocksLieWhereTheGridSays) {
  const std::vector<std::int64_t> shape = {1024, 1024};
  std::vector<double> values(1024 * 1024, 0.0);
  values[100 * 1024 + 300] = 2.0;
  const Sketch sketch = sketch_of_whole(TensorAt(ElementType::kF64, values), shape);
  for (std::size_t cell = 0; cell < sketch.cells.size(); ++cell) {
    EXPECT_EQ(std::abs(sketch.cells[cell]), cell == 100 / 16 * 64 + 300 / 16 ? 2.0 : 0.0);
  }
  EXPECT_EQ(sketch.row_squares[100 / 16], 4.0);
  EXPECT_EQ(sketch.column_squares[300 / 16], 4.0);
  EXPECT_EQ(sketch.squares(), 4.0);
}

TEST(Sketch, GridsHaveAbout4096BlocksOfAtLeast256Elements) {
  const auto blocks = [](const std::vector<std::int64_t>& shape) {
    const SketchGrid grid = sketch_grid(shape);
    return std::pair(grid.row_blocks(), grid.column_blocks());
  };
  using Blocks = std::pair<std::int64_t, std::int64_t>;
  EXPECT_EQ(blocks({2048, 4096}), Blocks(64, 64));
  EXPECT_EQ(blocks({4, 512, 4096}), Blocks(64, 64));
  EXPECT_EQ(blocks({2048, 5120}), Blocks(64, 40));  // of 128 columns
  EXPECT_EQ(blocks({8192, 4096}), Blocks(128, 64));
  EXPECT_EQ(blocks({32'768, 4096}), Blocks(256, 64));
  EXPECT_EQ(blocks({1 << 20}), Blocks(1, 4096));
  EXPECT_EQ(blocks({1 << 20, 1}), Blocks(16'384, 1));
  EXPECT_EQ(blocks({256, 128}), Blocks(16, 8));
  EXPECT_EQ(blocks({10, 10}), Blocks(1, 1));
  EXPECT_EQ(blocks({}), Blocks(1, 1));
  EXPECT_EQ(blocks({0, 5}), Blocks(0, 1));
}

TEST(Sketch, WhatIsNotFiniteIsLeftOutAndItsPlacesAreKnown) {
  const std::vector<std::int64_t> shape = {64, 64};
  for (const ElementType type : {ElementType::kF64, ElementType::kF32, ElementType::kBF16}) {
    std::vector<double> values = normal_values(elements_of(shape), 9);
    values[70] = values[4000] = 0.0;
    const Sketch clean = sketch_of_whole(TensorAt(type, values), shape);
    values[70] = std::numeric_limits<double>::infinity();
    values[4000] = -std::numeric_limits<double>::infinity();
    const Sketch sketch = sketch_of_whole(TensorAt(type, values), shape);
    values[4000] = 0.0;
    values[4001] = std::numeric_limits<double>::quiet_NaN();
    const Sketch elsewhere = sketch_of_whole(TensorAt(type, values), shape);
    EXPECT_EQ(sketch.nonfinite, 2U);
    EXPECT_EQ(elsewhere.nonfinite, 2U);
    EXPECT_NE(sketch.nonfinite_places, elsewhere.nonfinite_places);
    EXPECT_NEAR(squared_distance(sketch, clean), 0.0, 1e-6);
    EXPECT_NEAR(sketch.squares(), clean.squares(), 1e-6 * clean.squares());
    EXPECT_EQ(sketch.largest, clean.largest);
  }
}

// Gradients of 1e-25 have squares below the range of f32.
TEST(Sketch, SquaresOfTinyAndHugeElementsAreExact) {
  const std::vector<std::int64_t> shape = {64, 64};
  for (const double size : {1e-30, 1e-25, 1e25, 1e30}) {
    std::vector<double> values = normal_values(elements_of(shape), 10, size);
    const TensorAt tensor(ElementType::kBF16, values);
    to_double(tensor.type, tensor.data(), tensor.count, values.data());
    const double exact = std::inner_product(values.begin(), values.end(), values.begin(), 0.0);
    EXPECT_NEAR(sketch_of_whole(tensor, shape).squares(), exact, 1e-9 * exact);
  }
}

TEST(Sketch, ADigestSeesAnExchangeOfElementsAndASignAlone) {
  const std::vector<std::int64_t> shape = {16, 16};
  for (const ElementType type : kTypes) {
    std::vector<double> values(256, 1.0);
    values[17] = 2.0;
    const Digest digest = sketch_of_whole(TensorAt(type, values), shape).digest;
    std::swap(values[17], values[18]);
    EXPECT_FALSE(sketch_of_whole(TensorAt(type, values), shape).digest == digest);
    std::swap(values[17], values[18]);
    std::swap(values[17], values[200]);
    EXPECT_FALSE(sketch_of_whole(TensorAt(type, values), shape).digest == digest);
    std::swap(values[17], values[200]);
    values[3] = values[99] = -1.0;
    EXPECT_FALSE(sketch_of_whole(TensorAt(type, values), shape).digest == digest);
  }
}

TEST(Sketch, ASizeThatIsNotThePlacementsIsRefused) {
  const std::vector<std::int64_t> shape = {4, 4};
  const std::vector<std::byte> bytes(60);
  EXPECT_THROW(static_cast<void>(sketch_of(ElementType::kF32, bytes, whole(shape))), UsageError);
}

TEST(Sketch, IntegersHaveNone) {
  EXPECT_FALSE(has_sketch(ElementType::kI64));
  EXPECT_FALSE(has_sketch(ElementType::kE8M0));
  EXPECT_TRUE(has_sketch(ElementType::kE2M1));
}

// The format of files rests on these numbers.
TEST(Sketch, SignsAndDigestsAreThoseOfTheFormat) {
  const std::vector<std::int64_t> shape = {512, 512};
  std::vector<double> values(512 * 512);
  std::iota(values.begin(), values.end(), 0.0);
  const Sketch sketch = sketch_of_whole(TensorAt(ElementType::kF32, values), shape);
  ASSERT_EQ(sketch.cells.size(), 1024U);
  EXPECT_EQ(sketch.cells[0], 167'166.0);
  EXPECT_EQ(sketch.cells[1], 75'964.0);
  EXPECT_EQ(sketch.digest.low, 5044625566821739776U);
  EXPECT_EQ(sketch.digest.high, 3837499962353638400U);
}

}  // namespace
}  // namespace ttrace::testing
