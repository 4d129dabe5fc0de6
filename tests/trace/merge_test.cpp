#include "trace/merge/merge.h"

#include "shards.h"

#include <ttrace/dims.h>
#include <ttrace/error.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace ttrace {
namespace {

using testing::counting;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::logical_offsets;
using testing::Ranks;
using testing::values_of;

// A vector of 8 elements; this rank holds [logical, logical + extent) of it.
Placement piece(std::int64_t logical, std::int64_t extent, std::int64_t size = 8) {
  Placement placement;
  placement.dims.push_back({extent, size, {{0, logical, extent}}});
  return placement;
}

Placement addend(Placement placement, int index, int count) {
  placement.partial_index = index;
  placement.partial_count = count;
  placement.partial_over = "tp";
  return placement;
}

Placement scaled(Placement placement, double scale) {
  placement.scale = scale;
  return placement;
}

// --- by hand -------------------------------------------------------------------------------------

TEST(Merge, SingleWholeShardIsHandedOnWithoutACopy) {
  Ranks ranks;
  const Shard& shard =
      ranks.add(whole(std::vector<std::int64_t>{2, 2}), ElementType::kBF16, {1, 2, 3, 4});
  const MergeResult result = ranks.merge();
  EXPECT_EQ(result.bytes.data(), shard.bytes.data());
  EXPECT_TRUE(result.storage.empty());
  EXPECT_EQ(result.type, ElementType::kBF16);
  EXPECT_THAT(result.shape, ElementsAre(2, 2));
  EXPECT_THAT(result.findings, ::testing::IsEmpty());
}

TEST(Merge, WholeReplicasAreHandedOnWithoutACopy) {
  Ranks ranks;
  for (int rank = 0; rank < 3; ++rank) {
    ranks.add(whole(std::vector<std::int64_t>{4}), ElementType::kF32, {1, 2, 3, 4});
  }
  const MergeResult result = ranks.merge();
  EXPECT_EQ(result.bytes.data(), ranks.shards()[0].bytes.data());
  EXPECT_TRUE(result.findings.empty());
}

TEST(Merge, ColumnsInterleaveToRows) {
  Ranks ranks;
  for (int rank = 0; rank < 2; ++rank) {
    Layout layout{rank, 2, {}};
    layout.add("tp", 2, rank);
    const double start = rank * 2;
    ranks.add(place(parse_dims("s h[tp]"), std::vector<std::int64_t>{2, 2}, layout),
              ElementType::kF32,
              {start, start + 1, start + 4, start + 5});
  }
  EXPECT_EQ(values_of(ranks.merge()), counting(8));
}

TEST(Merge, ZigzagChunksComeInLogicalOrder) {
  Ranks ranks;
  for (int rank = 0; rank < 2; ++rank) {
    Layout layout{rank, 2, {}};
    layout.add("cp", 2, rank);
    ranks.add(place(parse_dims("s[cp:zigzag]"), std::vector<std::int64_t>{4}, layout),
              ElementType::kI64,
              rank == 0 ? std::vector<double>{0, 1, 6, 7} : std::vector<double>{2, 3, 4, 5});
  }
  const MergeResult result = ranks.merge();
  EXPECT_EQ(result.type, ElementType::kI64);
  EXPECT_EQ(values_of(result), counting(8));
}

TEST(Merge, GatedRowsOfEveryRankComeTogether) {
  Ranks ranks;
  for (int rank = 0; rank < 2; ++rank) {
    Layout layout{rank, 2, {}};
    layout.add("tp", 2, rank);
    const double gate = rank * 2;
    ranks.add(place(parse_dims("(2*f[tp])"), std::vector<std::int64_t>{4}, layout),
              ElementType::kF32,
              {gate, gate + 1, gate + 4, gate + 5});
  }
  EXPECT_EQ(values_of(ranks.merge()), counting(8));
}

TEST(Merge, AddendsAreSummedInDouble) {
  Ranks ranks;
  // 2^30 + 1 is no f32, and the order (2^60 + 1) - 2^60 would lose the one.
  ranks.add(addend(piece(0, 8), 0, 3), ElementType::kF32, std::vector<double>(8, 0x1p30));
  ranks.add(addend(piece(0, 8), 1, 3), ElementType::kF32, std::vector<double>(8, 1.0));
  ranks.add(addend(piece(0, 8), 2, 3), ElementType::kF32, std::vector<double>(8, 0x1p-20));
  const MergeResult result = ranks.merge();
  EXPECT_EQ(result.type, ElementType::kF64);
  EXPECT_EQ(values_of(result), std::vector<double>(8, 0x1p30 + 1.0 + 0x1p-20));
}

TEST(Merge, AddendsAreSummedInTheOrderOfTheirIndexNotOfTheRanks) {
  Ranks ranks;
  ranks.add(addend(piece(0, 8), 2, 3), ElementType::kF64, std::vector<double>(8, 1.0));
  ranks.add(addend(piece(0, 8), 0, 3), ElementType::kF64, std::vector<double>(8, 0x1p60));
  ranks.add(addend(piece(0, 8), 1, 3), ElementType::kF64, std::vector<double>(8, -0x1p60));
  EXPECT_EQ(values_of(ranks.merge()), std::vector<double>(8, 1.0));
}

TEST(Merge, ScaleIsAppliedInDouble) {
  Ranks ranks;
  ranks.add(scaled(piece(0, 8), 1.0 / 3.0), ElementType::kF32, std::vector<double>(8, 1.0));
  const MergeResult result = ranks.merge();
  EXPECT_EQ(result.type, ElementType::kF64);
  EXPECT_EQ(values_of(result), std::vector<double>(8, 1.0 / 3.0));
}

TEST(Merge, ScalarsAndEmptyTensorsMerge) {
  Ranks scalars;
  scalars.add(Placement{}, ElementType::kF32, {2.5});
  scalars.add(Placement{}, ElementType::kF32, {2.5});
  EXPECT_EQ(values_of(scalars.merge()), std::vector<double>{2.5});

  Ranks empty;
  empty.add(whole(std::vector<std::int64_t>{0, 4}), ElementType::kF32, {});
  const MergeResult result = empty.merge();
  EXPECT_TRUE(result.has_tensor());
  EXPECT_TRUE(result.findings.empty());
}

// Ranks that contradicted each other about a tensor without elements were said to have it.
TEST(Merge, ContradictingShardsWithoutElementsAreNoTensor) {
  Ranks ranks;
  ranks.add(whole(std::vector<std::int64_t>{0, 4}), ElementType::kF32, {});
  ranks.add(whole(std::vector<std::int64_t>{0, 3}), ElementType::kF32, {});
  const MergeResult result = ranks.merge();
  EXPECT_FALSE(result.has_tensor());
  EXPECT_EQ(result.findings.at(0).defect, MergeDefect::kShapesContradict);
}

// A copy of a merged tensor pointed into the storage of the one that it was copied from.
TEST(Merge, ResultMovesWithItsStorageAndIsNotCopied) {
  static_assert(!std::is_copy_constructible_v<MergeResult>);
  static_assert(!std::is_copy_assignable_v<MergeResult>);
  Ranks ranks;
  ranks.add(piece(0, 4), ElementType::kF32, {1, 2, 3, 4});
  ranks.add(piece(4, 4), ElementType::kF32, {5, 6, 7, 8});
  MergeResult result = ranks.merge();
  const MergeResult moved = std::move(result);
  EXPECT_EQ(moved.bytes.data(), moved.storage.data());
  EXPECT_EQ(values_of(moved), (std::vector<double>{1, 2, 3, 4, 5, 6, 7, 8}));
}

TEST(Merge, RankWithoutElementsIsNoGap) {
  Ranks ranks;
  ranks.add(piece(0, 8), ElementType::kF32, counting(8));
  Placement nothing;
  nothing.dims.push_back({2, 8, {}});
  ranks.add(nothing, ElementType::kF32, {99, 99});
  const MergeResult result = ranks.merge();
  EXPECT_TRUE(result.findings.empty());
  EXPECT_EQ(values_of(result), counting(8));
}

TEST(Merge, NobodyHoldingAnythingIsAGap) {
  Ranks ranks;
  Placement nothing;
  nothing.dims.push_back({2, 8, {}});
  ranks.add(nothing, ElementType::kF32, {99, 99});
  const MergeResult result = ranks.merge();
  ASSERT_EQ(result.findings.size(), 1u);
  EXPECT_EQ(result.findings[0].defect, MergeDefect::kGap);
  EXPECT_EQ(result.findings[0].message, "no rank holds [0:8]");
  EXPECT_FALSE(result.has_tensor());
}

TEST(Merge, GapNamesItsRangeAndTheRanksThatAreThere) {
  Ranks ranks;
  ranks.add(piece(0, 4), ElementType::kF32, counting(4));
  ranks.add(piece(6, 2), ElementType::kF32, counting(2));
  const MergeResult result = ranks.merge();
  ASSERT_EQ(result.findings.size(), 1u);
  EXPECT_EQ(result.findings[0].defect, MergeDefect::kGap);
  EXPECT_THAT(result.findings[0].ranks, ElementsAre(0, 1));
  EXPECT_EQ(result.findings[0].message, "no rank holds [4:6]; the rest is on ranks 0,1");
  EXPECT_FALSE(result.has_tensor());
}

TEST(Merge, OverlapNamesTheCommonRangeAndBothClaims) {
  Ranks ranks;
  ranks.add(piece(0, 5), ElementType::kF32, counting(5));
  ranks.add(piece(4, 4), ElementType::kF32, counting(4));
  const MergeResult result = ranks.merge();
  ASSERT_EQ(result.findings.size(), 1u);
  EXPECT_EQ(result.findings[0].defect, MergeDefect::kOverlap);
  EXPECT_THAT(result.findings[0].ranks, ElementsAre(0, 1));
  EXPECT_EQ(result.findings[0].message,
            "[4] is held by rank 0 as part of [0:5] and by rank 1 as part of [4:8]");
  EXPECT_FALSE(result.has_tensor());
}

TEST(Merge, ContradictingShapesNameRanksAndBothShapes) {
  Ranks ranks;
  ranks.add(piece(0, 4), ElementType::kF32, counting(4));
  ranks.add(piece(4, 4, 9), ElementType::kF32, counting(4));
  ranks.add(piece(4, 4), ElementType::kF32, counting(4));
  const MergeResult result = ranks.merge();
  ASSERT_EQ(result.findings.size(), 1u);
  EXPECT_EQ(result.findings[0].defect, MergeDefect::kShapesContradict);
  EXPECT_THAT(result.findings[0].ranks, ElementsAre(0, 1));
  EXPECT_EQ(result.findings[0].message,
            "the logical shape differs between ranks: [8] on ranks 0,2, [9] on rank 1");
  EXPECT_FALSE(result.has_tensor());
}

TEST(Merge, ContradictingTypesAndAddendCountsAreFound) {
  Ranks types;
  types.add(piece(0, 4), ElementType::kF32, counting(4));
  types.add(piece(4, 4), ElementType::kBF16, counting(4));
  ASSERT_EQ(types.merge().findings.size(), 1u);
  EXPECT_EQ(types.merge().findings[0].message,
            "the element type differs between ranks: bf16 on rank 1, f32 on rank 0");

  Ranks counts;
  counts.add(addend(piece(0, 8), 0, 2), ElementType::kF32, counting(8));
  counts.add(addend(piece(0, 8), 1, 3), ElementType::kF32, counting(8));
  ASSERT_EQ(counts.merge().findings.size(), 1u);
  EXPECT_EQ(counts.merge().findings[0].message,
            "the number of addends differs between ranks: 2 on rank 0, 3 on rank 1");
}

TEST(Merge, MissingAddendsAreNumberedWithTheirAxis) {
  Ranks ranks;
  ranks.add(addend(piece(0, 8), 0, 2), ElementType::kF32, counting(8));
  const MergeResult result = ranks.merge();
  ASSERT_EQ(result.findings.size(), 1u);
  EXPECT_EQ(result.findings[0].defect, MergeDefect::kAddendsMissing);
  EXPECT_EQ(result.findings[0].message,
            "addend 1 of 2 over tp is missing (counted from 0); the rest is on rank 0");
  EXPECT_FALSE(result.has_tensor());
}

TEST(Merge, DisagreeingReplicasAreGroupedAndTheLowestRankCounts) {
  Ranks ranks;
  for (int rank = 0; rank < 4; ++rank) {
    std::vector<double> values = counting(8);
    if (rank % 2 == 1) {
      values[3] = 3.5;
      values[6] = 8;
    }
    ranks.add(piece(0, 8), ElementType::kF32, values);
  }
  const MergeResult result = ranks.merge();
  ASSERT_EQ(result.findings.size(), 1u);
  EXPECT_EQ(result.findings[0].defect, MergeDefect::kReplicasDisagree);
  EXPECT_THAT(result.findings[0].ranks, ElementsAre(0, 1, 3));
  EXPECT_EQ(result.findings[0].difference, 2.0);
  EXPECT_EQ(result.findings[0].message,
            "ranks 0,2 and ranks 1,3 hold different values in [0:8]: 2 of 8 elements differ "
            "between ranks 0 and 1, first at [3] (3 and 3.5); largest difference 2");
  EXPECT_EQ(values_of(result), counting(8));
}

TEST(Merge, DisagreeingScalarsAreToldByTheirValues) {
  Ranks ranks;
  ranks.add(whole(std::vector<std::int64_t>{}), ElementType::kF32, {3.0});
  ranks.add(whole(std::vector<std::int64_t>{}), ElementType::kF32, {3.5});
  const MergeResult result = ranks.merge();
  ASSERT_EQ(result.findings.size(), 1u);
  EXPECT_EQ(result.findings[0].message,
            "rank 0 and rank 1 hold different values: 3 on rank 0 and 3.5 on rank 1");
}

TEST(Merge, BitsDecideWhetherReplicasAgree) {
  Ranks zeros;
  zeros.add(piece(0, 8), ElementType::kF32, std::vector<double>(8, 0.0));
  zeros.add(piece(0, 8), ElementType::kF32, std::vector<double>(8, -0.0));
  ASSERT_EQ(zeros.merge().findings.size(), 1u);
  EXPECT_EQ(zeros.merge().findings[0].difference, 0.0);
  EXPECT_THAT(zeros.merge().findings[0].message, HasSubstr("(0 and -0)"));

  const double nan = std::numeric_limits<double>::quiet_NaN();
  Ranks nans;
  nans.add(piece(0, 8), ElementType::kF32, std::vector<double>(8, nan));
  nans.add(piece(0, 8), ElementType::kF32, std::vector<double>(8, nan));
  EXPECT_TRUE(nans.merge().findings.empty());
  nans.bytes(1)[4] ^= std::byte{1};  // another payload
  EXPECT_EQ(nans.merge().findings.size(), 1u);
}

TEST(Merge, PaddingOfReplicasMayDiffer) {
  Placement padded;
  padded.dims.push_back({6, 4, {{0, 0, 4}}});
  Ranks ranks;
  ranks.add(padded, ElementType::kF32, {0, 1, 2, 3, 7, 7});
  ranks.add(padded, ElementType::kF32, {0, 1, 2, 3, 9, 9});
  const MergeResult result = ranks.merge();
  EXPECT_TRUE(result.findings.empty());
  EXPECT_EQ(values_of(result), counting(4));
}

TEST(Merge, ReplicasInDifferentOrderAreComparedByLogicalIndex) {
  const std::vector<std::int64_t> order{2, 0, 1, 3};
  const Placement natural = whole(std::vector<std::int64_t>{4});
  Ranks ranks;
  ranks.add(natural, ElementType::kF32, {0, 1, 2, 3});
  ranks.add(permute(natural, 0, order), ElementType::kF32, {2, 0, 1, 3});
  EXPECT_TRUE(ranks.merge().findings.empty());
  ranks.add(permute(natural, 0, order), ElementType::kF32, {2, 0, 5, 3});
  const MergeResult result = ranks.merge();
  ASSERT_EQ(result.findings.size(), 1u);
  EXPECT_THAT(result.findings[0].ranks, ElementsAre(0, 2));
  EXPECT_THAT(result.findings[0].message, HasSubstr("first at [1] (1 and 5)"));
}

TEST(Merge, ReplicasWithDifferentScalesAgreeInLogicalValues) {
  Ranks ranks;
  ranks.add(scaled(piece(0, 8), 0.5), ElementType::kF32, std::vector<double>(8, 4.0));
  ranks.add(piece(0, 8), ElementType::kF32, std::vector<double>(8, 2.0));
  EXPECT_TRUE(ranks.merge().findings.empty());
  EXPECT_EQ(values_of(ranks.merge()), std::vector<double>(8, 2.0));
}

TEST(Merge, ManySingleSampleSegmentsStayQuick) {
  // Every rank holds every eighth of 32768 samples: 4096 segments of one each.
  constexpr int kRanks = 8;
  constexpr std::int64_t kSamples = 32768;
  Ranks ranks;
  for (int rank = 0; rank < kRanks; ++rank) {
    Placement placement;
    DimPlacement& dim = placement.dims.emplace_back(DimPlacement{kSamples / kRanks, kSamples, {}});
    std::vector<double> values;
    for (std::int64_t i = 0; i < dim.local_size; ++i) {
      dim.segments.push_back({i, i * kRanks + rank, 1});
      values.push_back(static_cast<double>(i * kRanks + rank));
    }
    ranks.add(std::move(placement), ElementType::kF32, values);
  }
  const MergeResult result = ranks.merge();
  EXPECT_TRUE(result.findings.empty());
  EXPECT_EQ(values_of(result), counting(static_cast<std::size_t>(kSamples)));
}

TEST(Merge, BytesThatDoNotFitTheShapeAreAFormatError) {
  Ranks ranks;
  Shard& shard = ranks.add(piece(0, 8), ElementType::kF32, counting(8));
  shard.bytes = shard.bytes.first(28);
  EXPECT_THROW(static_cast<void>(ranks.merge()), FormatError);
  shard.bytes = ranks.bytes(0);
  ranks.record(0).shape = {4, 2};
  EXPECT_THROW(static_cast<void>(ranks.merge()), FormatError);
}

TEST(Merge, NoShardsAreAUsageError) {
  EXPECT_THROW(static_cast<void>(merge({})), UsageError);
}

TEST(Extract, PartialOrScaledPlacementsAreRefused) {
  const std::vector<float> logical(8);
  std::vector<float> local(8);
  EXPECT_THROW(extract(addend(piece(0, 8), 0, 2), ElementType::kF32, logical.data(), local.data()),
               UsageError);
  EXPECT_THROW(extract(scaled(piece(0, 8), 2.0), ElementType::kF32, logical.data(), local.data()),
               UsageError);
}

// --- random layouts ------------------------------------------------------------------------------

enum class Cut { kEven, kPadded, kZigzag, kGated, kStrided };

struct RandomDim {
  int ranks = 1;
  Cut cut = Cut::kEven;
  std::int64_t unit = 1;  // elements of the smallest piece
  bool permuted = false;
};

// A layout and a tensor; everything follows from these fields.
struct RandomCase {
  std::vector<RandomDim> dims;
  int addends = 1;
  int replicas = 1;
  bool is_scaled = false;
  ElementType type = ElementType::kF32;
  unsigned seed = 0;
};

std::string text_of(const RandomCase& c) {
  std::string text = "seed " + std::to_string(c.seed) + " " + std::string(name_of(c.type)) +
                     " addends " + std::to_string(c.addends) + " replicas " +
                     std::to_string(c.replicas) + (c.is_scaled ? " scaled" : "");
  for (const RandomDim& dim : c.dims) {
    text += " (ranks " + std::to_string(dim.ranks) + " cut " +
            std::to_string(static_cast<int>(dim.cut)) + " unit " + std::to_string(dim.unit) +
            (dim.permuted ? " permuted)" : ")");
  }
  return text;
}

DimPlacement place_dim(const RandomDim& dim, int coordinate) {
  const std::int64_t ranks = dim.ranks;
  const std::int64_t unit = dim.unit;
  const std::int64_t at = coordinate;
  switch (dim.cut) {
    case Cut::kEven:
      return {unit, ranks * unit, {{0, at * unit, unit}}};
    case Cut::kPadded: {  // the last rank has one element less and padding in its place
      const std::int64_t held = at + 1 == ranks ? unit - 1 : unit;
      DimPlacement placement{unit, ranks * unit - 1, {}};
      if (held > 0) {
        placement.segments.push_back({0, at * unit, held});
      }
      return placement;
    }
    case Cut::kZigzag:
      return {2 * unit,
              2 * ranks * unit,
              {{0, at * unit, unit}, {unit, (2 * ranks - 1 - at) * unit, unit}}};
    case Cut::kGated:
      return {
          2 * unit, 2 * ranks * unit, {{0, at * unit, unit}, {unit, (ranks + at) * unit, unit}}};
    case Cut::kStrided: {  // one element in turn
      DimPlacement placement{unit, ranks * unit, {}};
      for (std::int64_t i = 0; i < unit; ++i) {
        placement.segments.push_back({i, i * ranks + at, 1});
      }
      return placement;
    }
  }
  return {};
}

// A tensor of small whole numbers, exact in every type, cut as the case says. Ranks count through
// the dimensions, then the addends, then the replicas.
class RandomTensor {
 public:
  explicit RandomTensor(const RandomCase& random_case) : case_(random_case), engine_(case_.seed) {
    const std::vector<Placement> placements = place_all();
    std::int64_t count = 1;
    for (const DimPlacement& dim : placements.front().dims) {
      count *= dim.logical_size;
    }
    std::vector<std::vector<double>> addends(static_cast<std::size_t>(case_.addends));
    logical_.assign(static_cast<std::size_t>(count), 0.0);
    for (std::vector<double>& values : addends) {
      for (double& total : logical_) {
        values.push_back(static_cast<double>(engine_() % 64));
        total += values.back();
      }
    }
    for (int replica = 0; replica < case_.replicas; ++replica) {
      for (int index = 0; index < case_.addends; ++index) {
        for (Placement placement : placements) {
          placement.partial_index = index;
          placement.partial_count = case_.addends;
          placement.scale = case_.is_scaled ? 0.25 : 1.0;
          add(placement, addends[static_cast<std::size_t>(index)]);
        }
      }
    }
  }

  [[nodiscard]] Ranks& ranks() { return ranks_; }
  [[nodiscard]] const std::vector<double>& logical() const { return logical_; }
  [[nodiscard]] std::mt19937_64& engine() { return engine_; }

 private:
  // One for every combination of coordinates.
  std::vector<Placement> place_all() {
    std::vector<Placement> placements(1);
    for (const RandomDim& dim : case_.dims) {
      std::vector<Placement> finer;
      for (const Placement& outer : placements) {
        for (int coordinate = 0; coordinate < dim.ranks; ++coordinate) {
          Placement& placement = finer.emplace_back(outer);
          placement.dims.push_back(place_dim(dim, coordinate));
        }
      }
      placements = std::move(finer);
    }
    for (Placement& placement : placements) {
      for (std::size_t dim = 0; dim < case_.dims.size(); ++dim) {
        if (case_.dims[dim].permuted) {
          std::vector<std::int64_t> order(static_cast<std::size_t>(placement.dims[dim].local_size));
          std::iota(order.begin(), order.end(), 0);
          std::shuffle(order.begin(), order.end(), engine_);
          placement = permute(std::move(placement), dim, order);
        }
      }
    }
    return placements;
  }

  void add(const Placement& placement, const std::vector<double>& logical) {
    std::vector<double> local;
    for (const std::int64_t offset : logical_offsets(placement)) {
      // Padding is garbage that differs from rank to rank.
      local.push_back(offset < 0 ? static_cast<double>(engine_() % 100)
                                 : logical[static_cast<std::size_t>(offset)] / placement.scale);
    }
    ranks_.add(placement, case_.type, local);
  }

  RandomCase case_;
  std::mt19937_64 engine_;
  Ranks ranks_;
  std::vector<double> logical_;
};

RandomCase random_case(unsigned seed) {
  std::mt19937_64 engine(seed);
  const auto below = [&engine](unsigned limit) { return static_cast<int>(engine() % limit); };
  RandomCase c;
  c.seed = seed;
  c.dims.resize(static_cast<std::size_t>(below(5)));
  for (RandomDim& dim : c.dims) {
    dim.ranks = below(2) == 0 ? 1 : 2 + below(2);
    dim.cut = static_cast<Cut>(below(5));
    dim.unit = 1 + below(3);
    dim.permuted = below(4) == 0;
    if (dim.cut == Cut::kPadded && dim.ranks == 1) {
      dim.unit += 1;  // keep an element next to the padding
    }
  }
  c.addends = below(3) == 0 ? 2 + below(2) : 1;
  c.replicas = 1 + below(3);
  c.is_scaled = below(4) == 0;
  constexpr std::array kTypes = {
      ElementType::kF64, ElementType::kF32, ElementType::kBF16, ElementType::kI32};
  c.type = kTypes[static_cast<std::size_t>(below(4))];
  return c;
}

// The same case with one thing less, for every thing there is.
std::vector<RandomCase> smaller_cases(const RandomCase& c) {
  std::vector<RandomCase> smaller;
  const auto offer = [&](const std::function<void(RandomCase&)>& change) {
    RandomCase candidate = c;
    change(candidate);
    if (text_of(candidate) != text_of(c)) {
      smaller.push_back(std::move(candidate));
    }
  };
  offer([](RandomCase& x) { x.addends = 1; });
  offer([](RandomCase& x) { x.replicas = 1; });
  offer([](RandomCase& x) { x.is_scaled = false; });
  offer([](RandomCase& x) { x.type = ElementType::kF64; });
  for (std::size_t i = 0; i < c.dims.size(); ++i) {
    offer([i](RandomCase& x) { x.dims.erase(x.dims.begin() + static_cast<std::ptrdiff_t>(i)); });
    offer([i](RandomCase& x) { x.dims[i].ranks = 1; });
    offer([i](RandomCase& x) { x.dims[i].cut = Cut::kEven; });
    offer([i](RandomCase& x) { x.dims[i].unit = std::max<std::int64_t>(1, x.dims[i].unit - 1); });
    offer([i](RandomCase& x) { x.dims[i].permuted = false; });
  }
  return smaller;
}

// The error of a case, or nothing.
using Property = std::function<std::optional<std::string>(const RandomCase&)>;

// Reports the smallest case that still fails.
void expect_for_random_cases(const Property& property) {
  for (unsigned seed = 1; seed <= 400; ++seed) {
    RandomCase failing = random_case(seed);
    std::optional<std::string> failure = property(failing);
    for (bool shrinks = failure.has_value(); shrinks;) {
      shrinks = false;
      for (const RandomCase& candidate : smaller_cases(failing)) {
        if (std::optional<std::string> still = property(candidate)) {
          failing = candidate;
          failure = std::move(still);
          shrinks = true;
          break;
        }
      }
    }
    ASSERT_FALSE(failure.has_value()) << text_of(failing) << ": " << *failure;
  }
}

TEST(MergeRandom, MergeRestoresTheLogicalTensorExactly) {
  expect_for_random_cases([](const RandomCase& c) -> std::optional<std::string> {
    RandomTensor tensor(c);
    const MergeResult result = tensor.ranks().merge();
    if (!result.findings.empty()) {
      return "unexpected finding: " + result.findings[0].message;
    }
    const bool widened = c.addends > 1 || c.is_scaled;
    if (result.type != (widened ? ElementType::kF64 : c.type)) {
      return "result is of type " + std::string(name_of(result.type));
    }
    if (values_of(result) != tensor.logical()) {
      return "values differ";
    }
    return std::nullopt;
  });
}

TEST(MergeRandom, ExtractIsTheInverseOfMergeWithZeroPadding) {
  expect_for_random_cases([](RandomCase c) -> std::optional<std::string> {
    c.addends = 1;
    c.is_scaled = false;
    RandomTensor tensor(c);
    const MergeResult result = tensor.ranks().merge();
    for (const Shard& shard : tensor.ranks().shards()) {
      std::vector<std::byte> expected(shard.bytes.begin(), shard.bytes.end());
      const std::size_t size = element_size(c.type);
      const std::vector<std::int64_t> offsets = logical_offsets(shard.record->placement);
      for (std::size_t i = 0; i < offsets.size(); ++i) {
        if (offsets[i] < 0) {
          std::memset(expected.data() + i * size, 0, size);
        }
      }
      std::vector<std::byte> local(expected.size(), std::byte{0xa5});
      extract(shard.record->placement, c.type, result.bytes.data(), local.data());
      if (local != expected) {
        return "rank " + std::to_string(shard.rank) + " differs";
      }
    }
    return std::nullopt;
  });
}

// --- one defect ----------------------------------------------------------------------------------

// The result that an injected defect must have; nothing if the case has no room for it.
struct Expectation {
  MergeDefect defect = MergeDefect::kGap;
  std::vector<int> ranks;
};
using Injection = std::function<std::optional<Expectation>(RandomTensor&)>;

// The elements of a shard's region, as a value that equal regions share.
std::vector<std::int64_t> elements_of(const Shard& shard) {
  std::vector<std::int64_t> offsets = logical_offsets(shard.record->placement);
  std::erase(offsets, -1);
  std::sort(offsets.begin(), offsets.end());
  return offsets;
}

bool are_copies(const Shard& a, const Shard& b) {
  return a.record->placement.partial_index == b.record->placement.partial_index &&
         elements_of(a) == elements_of(b);
}

const Shard& pick(RandomTensor& tensor) {
  const std::vector<Shard>& shards = tensor.ranks().shards();
  return shards[tensor.engine()() % shards.size()];
}

std::vector<int> ranks_where(RandomTensor& tensor, const std::function<bool(const Shard&)>& holds) {
  std::vector<int> ranks;
  for (const Shard& shard : tensor.ranks().shards()) {
    if (holds(shard)) {
      ranks.push_back(shard.rank);
    }
  }
  return ranks;
}

void expect_found(const Injection& inject) {
  int injected = 0;
  expect_for_random_cases([&](const RandomCase& c) -> std::optional<std::string> {
    RandomTensor tensor(c);
    const std::optional<Expectation> expected = inject(tensor);
    if (!expected) {
      return std::nullopt;
    }
    ++injected;
    const MergeResult result = tensor.ranks().merge();
    if (result.findings.size() != 1) {
      return std::to_string(result.findings.size()) + " findings";
    }
    const MergeFinding& finding = result.findings[0];
    if (finding.defect != expected->defect) {
      return "found " + std::string(name_of(finding.defect)) + ": " + finding.message;
    }
    if (finding.ranks != expected->ranks) {
      return "wrong ranks: " + finding.message;
    }
    if (result.has_tensor() != (expected->defect == MergeDefect::kReplicasDisagree)) {
      return "tensor there or not: " + finding.message;
    }
    return std::nullopt;
  });
  EXPECT_GT(injected, 50);
}

TEST(MergeRandom, OneFlippedBitInAReplicaIsFound) {
  expect_found([](RandomTensor& tensor) -> std::optional<Expectation> {
    const Shard shard = pick(tensor);
    const std::vector<int> copies =
        ranks_where(tensor, [&](const Shard& other) { return are_copies(shard, other); });
    const std::vector<std::int64_t> offsets = logical_offsets(shard.record->placement);
    std::vector<std::size_t> held;
    for (std::size_t i = 0; i < offsets.size(); ++i) {
      if (offsets[i] >= 0) {
        held.push_back(i);
      }
    }
    if (copies.size() < 2 || held.empty()) {
      return std::nullopt;
    }
    const std::size_t element = held[tensor.engine()() % held.size()];
    const std::size_t byte = element * element_size(shard.record->type);
    tensor.ranks().bytes(shard.rank)[byte] ^= std::byte{1};
    // The lowest rank and those that differ from it.
    if (shard.rank == copies.front()) {
      return Expectation{MergeDefect::kReplicasDisagree, copies};
    }
    return Expectation{MergeDefect::kReplicasDisagree, {copies.front(), shard.rank}};
  });
}

TEST(MergeRandom, RegionThatNobodyHoldsIsFound) {
  expect_found([](RandomTensor& tensor) -> std::optional<Expectation> {
    const Shard shard = pick(tensor);
    const int index = shard.record->placement.partial_index;
    const std::vector<int> others = ranks_where(tensor, [&](const Shard& other) {
      return other.record->placement.partial_index == index && !are_copies(shard, other) &&
             !elements_of(other).empty();
    });
    if (others.empty() || elements_of(shard).empty()) {
      return std::nullopt;
    }
    tensor.ranks().remove_if([&](const Shard& other) { return are_copies(shard, other); });
    return Expectation{MergeDefect::kGap, others};
  });
}

TEST(MergeRandom, ShardClaimingTheWholeBesidePiecesIsFound) {
  expect_found([](RandomTensor& tensor) -> std::optional<Expectation> {
    const Shard shard = pick(tensor);
    Placement placement = whole(shard.record->placement.logical_shape());
    placement.partial_index = shard.record->placement.partial_index;
    placement.partial_count = shard.record->placement.partial_count;
    placement.scale = shard.record->placement.scale;
    const std::vector<int> wholes = ranks_where(tensor, [&](const Shard& other) {
      return elements_of(other).size() == tensor.logical().size();
    });
    if (!wholes.empty()) {
      return std::nullopt;  // it would be a replica
    }
    tensor.ranks().add(placement, shard.record->type, tensor.logical());
    return Expectation{MergeDefect::kOverlap, ranks_where(tensor, [&](const Shard& other) {
                         return other.record->placement.partial_index == placement.partial_index &&
                                !elements_of(other).empty();
                       })};
  });
}

TEST(MergeRandom, RankWithAnotherLogicalShapeIsFound) {
  expect_found([](RandomTensor& tensor) -> std::optional<Expectation> {
    const Shard shard = pick(tensor);
    Placement& placement = tensor.ranks().record(shard.rank).placement;
    const std::size_t ranks = tensor.ranks().shards().size();
    if (placement.dims.empty() || ranks < 2) {
      return std::nullopt;
    }
    placement.dims[tensor.engine()() % placement.dims.size()].logical_size += 1;
    if (shard.rank == 0) {
      return Expectation{MergeDefect::kShapesContradict,
                         ranks_where(tensor, [](const Shard&) { return true; })};
    }
    return Expectation{MergeDefect::kShapesContradict, {0, shard.rank}};
  });
}

TEST(MergeRandom, MissingAddendIsFound) {
  expect_found([](RandomTensor& tensor) -> std::optional<Expectation> {
    const int index = pick(tensor).record->placement.partial_index;
    const std::vector<int> others = ranks_where(tensor, [&](const Shard& other) {
      return other.record->placement.partial_index != index && !elements_of(other).empty();
    });
    if (others.empty()) {
      return std::nullopt;
    }
    tensor.ranks().remove_if(
        [&](const Shard& other) { return other.record->placement.partial_index == index; });
    return Expectation{MergeDefect::kAddendsMissing, others};
  });
}

}  // namespace
}  // namespace ttrace
