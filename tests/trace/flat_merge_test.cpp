// Flat ranges: what a distributed optimizer holds of parameters that its buckets cut anywhere.
#include "shards.h"
#include "trace/merge/merge.h"
#include "trace/place/fill.h"

#include <ttrace/error.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

namespace ttrace {
namespace {

using testing::counting;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::logical_offsets;
using testing::Ranks;
using ::testing::SizeIs;
using testing::values_of;

// Elements [first, first + count) of what `dims` place, as text of the index.
Placement flat(const std::string& dims, std::int64_t first, std::int64_t count) {
  return parse_placement(dims + " flat=" + std::to_string(first) + "+" + std::to_string(count));
}

// The elements of a tensor that counts from 0, as a rank with this placement holds them.
std::vector<double> held(const Placement& placement, double padding = -1.0) {
  std::vector<double> values;
  for (const std::int64_t offset : logical_offsets(placement)) {
    values.push_back(offset < 0 ? padding : static_cast<double>(offset));
  }
  return values;
}

void add(Ranks& ranks, const Placement& placement) {
  ranks.add(placement, ElementType::kF32, held(placement));
}

TEST(FlatMerge, RangesThatCutRowsMakeTheParameter) {
  Ranks ranks;
  add(ranks, flat("4 5", 0, 7));
  add(ranks, flat("4 5", 7, 2));
  add(ranks, flat("4 5", 9, 11));
  const MergeResult result = ranks.merge();
  EXPECT_THAT(result.findings, IsEmpty());
  EXPECT_THAT(result.shape, ElementsAre(4, 5));
  EXPECT_EQ(result.type, ElementType::kF32);
  EXPECT_EQ(values_of(result), counting(20));
}

TEST(FlatMerge, RangesOfTensorParallelShardsMakeTheParameter) {
  // Gated fc1 of 8 rows over tp 2: each rank has two gate and two up rows of three columns.
  const std::array<std::string, 2> local = {"8/4:0+0+2,2+4+2 3", "8/4:0+2+2,2+6+2 3"};
  Ranks ranks;
  for (const std::string& dims : local) {
    add(ranks, flat(dims, 0, 5));
    add(ranks, flat(dims, 5, 7));
  }
  const MergeResult result = ranks.merge();
  EXPECT_THAT(result.findings, IsEmpty());
  EXPECT_EQ(values_of(result), counting(24));
}

TEST(FlatMerge, RangesCutColumnsOfARowParallelWeight) {
  Ranks ranks;
  for (const char* dims : {"3 8/4:0+0+4", "3 8/4:0+4+4"}) {
    add(ranks, flat(dims, 0, 6));
    add(ranks, flat(dims, 6, 6));
  }
  EXPECT_EQ(values_of(ranks.merge()), counting(24));
}

TEST(FlatMerge, PaddingOfTheLocalTensorIsNobodysAndMayLack) {
  // A vocabulary of 5 over tp 2 padded to 6: the second rank's last row is padding.
  Ranks ranks;
  add(ranks, flat("5/3:0+0+3 2", 0, 6));
  add(ranks, flat("5/3:0+3+2 2", 0, 3));
  add(ranks, flat("5/3:0+3+2 2", 3, 1));  // missing in its padding
  const MergeResult result = ranks.merge();
  EXPECT_THAT(result.findings, IsEmpty());
  EXPECT_EQ(values_of(result), counting(10));
}

TEST(FlatMerge, RankWithNothingOfTheParameterIsLegal) {
  Ranks ranks;
  add(ranks, flat("2 3", 0, 0));
  add(ranks, flat("2 3", 0, 4));
  add(ranks, flat("2 3", 4, 2));
  add(ranks, flat("2 3", 6, 0));
  const MergeResult result = ranks.merge();
  EXPECT_THAT(result.findings, IsEmpty());
  EXPECT_EQ(values_of(result), counting(6));
}

TEST(FlatMerge, OneRangeOfEverythingIsTheTensor) {
  Ranks ranks;
  add(ranks, flat("2 3", 0, 6));
  EXPECT_EQ(values_of(ranks.merge()), counting(6));
  Ranks scalar;
  scalar.add(flat("-", 0, 1), ElementType::kF32, {2.5});
  EXPECT_EQ(values_of(scalar.merge()), std::vector<double>{2.5});
}

TEST(FlatMerge, TiedCopiesMayBeCutElsewhere) {
  // The embedding on the first and on the last stage lies in different buckets.
  Ranks ranks;
  add(ranks, flat("4 3", 0, 5));
  add(ranks, flat("4 3", 5, 7));
  add(ranks, flat("4 3", 0, 8));
  add(ranks, flat("4 3", 8, 4));
  const MergeResult result = ranks.merge();
  EXPECT_THAT(result.findings, IsEmpty());
  EXPECT_EQ(values_of(result), counting(12));
}

TEST(FlatMerge, WholeCopiesAreReplicasOfJoinedOnes) {
  Ranks ranks;
  add(ranks, flat("2 3", 0, 4));
  add(ranks, parse_placement("2 3"));
  add(ranks, flat("2 3", 4, 2));
  EXPECT_THAT(ranks.merge().findings, IsEmpty());
  ranks.bytes(1)[5 * sizeof(float)] ^= std::byte{1};
  const MergeResult result = ranks.merge();
  ASSERT_THAT(result.findings, SizeIs(1));
  EXPECT_EQ(result.findings[0].defect, MergeDefect::kReplicasDisagree);
  EXPECT_THAT(result.findings[0].ranks, ElementsAre(0, 1, 2));
  EXPECT_THAT(result.findings[0].message,
              HasSubstr("ranks 0,2 and rank 1 hold different values in [0:2, 0:3]"));
}

TEST(FlatMerge, OverlappingRangesMustAgreeAndAreNamedByLogicalIndices) {
  Ranks ranks;
  add(ranks, flat("4 5", 0, 12));
  ranks.add(
      flat("4 5", 8, 12), ElementType::kF32, {8, 9, 10, 11.5, 12, 13, 14, 15, 16, 17, 18, 19});
  const MergeResult result = ranks.merge();
  ASSERT_THAT(result.findings, SizeIs(1));
  EXPECT_EQ(result.findings[0].defect, MergeDefect::kReplicasDisagree);
  EXPECT_THAT(result.findings[0].ranks, ElementsAre(0, 1));
  EXPECT_EQ(result.findings[0].difference, 0.5);
  EXPECT_EQ(result.findings[0].message,
            "ranks 0,1 hold different values in [1, 3:5] [2, 0:2]: 1 of 4 elements differ between "
            "ranks 0 and 1, first at [2, 1] (11 and 11.5); largest difference 0.5");
  EXPECT_EQ(values_of(result), counting(20)) << "the lowest rank's value counts";
}

TEST(FlatMerge, EveryPairThatDisagreesIsCounted) {
  Ranks ranks;
  for (int rank = 0; rank < 8; ++rank) {
    ranks.add(flat("6", 0, 6), ElementType::kF32, std::vector<double>(6, rank));
  }
  const MergeResult result = ranks.merge();
  ASSERT_THAT(result.findings, SizeIs(1));
  EXPECT_THAT(result.findings[0].ranks, SizeIs(8));
  EXPECT_EQ(result.findings[0].difference, 7.0);
  EXPECT_THAT(result.findings[0].message,
              HasSubstr("; so do ranks 0 and 2, 0 and 3, 0 and 4, 0 and 5 and 2 more pairs"));
}

TEST(FlatMerge, PaddingInAnOverlapMayDiffer) {
  const std::string dims = "2 3/4:0+0+3";
  Ranks ranks;
  ranks.add(flat(dims, 0, 8), ElementType::kF32, {0, 1, 2, 70, 3, 4, 5, 70});
  ranks.add(flat(dims, 2, 6), ElementType::kF32, {2, 90, 3, 4, 5, 90});
  const MergeResult result = ranks.merge();
  EXPECT_THAT(result.findings, IsEmpty());
  EXPECT_EQ(values_of(result), counting(6));
}

TEST(FlatMerge, GapInTheMiddleOfARowIsNamed) {
  Ranks ranks;
  add(ranks, flat("3 4", 0, 5));
  add(ranks, flat("3 4", 7, 5));
  const MergeResult result = ranks.merge();
  ASSERT_THAT(result.findings, SizeIs(1));
  EXPECT_EQ(result.findings[0].defect, MergeDefect::kGap);
  EXPECT_THAT(result.findings[0].ranks, ElementsAre(0, 1));
  EXPECT_EQ(result.findings[0].message, "no rank holds [1, 1:3]; the rest is on ranks 0,1");
  EXPECT_FALSE(result.has_tensor());
}

TEST(FlatMerge, NobodyHoldingAnythingIsAGap) {
  Ranks ranks;
  add(ranks, flat("3 4", 0, 0));
  ASSERT_THAT(ranks.merge().findings, SizeIs(1));
  EXPECT_EQ(ranks.merge().findings[0].message, "no rank holds [0:3, 0:4]");
}

TEST(FlatMerge, OtherLogicalShapesContradict) {
  Ranks ranks;
  add(ranks, flat("3 4", 0, 12));
  add(ranks, flat("3 5", 0, 15));
  ASSERT_THAT(ranks.merge().findings, SizeIs(1));
  EXPECT_EQ(ranks.merge().findings[0].defect, MergeDefect::kShapesContradict);
}

TEST(FlatMerge, AddendsAndScalesWorkAsEverywhere) {
  Ranks ranks;
  for (int index = 0; index < 2; ++index) {
    for (const std::int64_t first : {0, 3}) {
      Placement placement = flat("2 3", first, 3);
      placement.partial_index = index;
      placement.partial_count = 2;
      placement.scale = 0.5;
      ranks.add(placement, ElementType::kBF16, held(placement));
    }
  }
  const MergeResult result = ranks.merge();
  EXPECT_EQ(result.type, ElementType::kF64);
  EXPECT_EQ(values_of(result), counting(6));
}

TEST(FlatMerge, DifferentScalesMeetInDouble) {
  Ranks ranks;
  Placement halved = flat("6", 0, 4);
  halved.scale = 0.5;
  ranks.add(halved, ElementType::kF32, {0, 2, 4, 6});
  ranks.add(flat("6", 3, 3), ElementType::kF32, {3, 4, 5});
  const MergeResult result = ranks.merge();
  EXPECT_THAT(result.findings, IsEmpty());
  EXPECT_EQ(result.type, ElementType::kF64);
  EXPECT_EQ(values_of(result), counting(6));
}

TEST(FlatMerge, RangesBeyondTheParameterAreRefused) {
  Ranks ranks;
  add(ranks, flat("3 4", 0, 12));
  ranks.record(0).placement.flat = FlatRange{1, 12};
  try {
    static_cast<void>(ranks.merge());
    ADD_FAILURE() << "accepted a range beyond the parameter";
  } catch (const FormatError& error) {
    EXPECT_THAT(error.message(), HasSubstr("flat range of 12 elements from element 1"));
    EXPECT_THAT(error.message(), HasSubstr("12"));
  }
  ranks.record(0).placement.flat = FlatRange{0, 11};  // 11 elements, but 12 in the record
  EXPECT_THROW(static_cast<void>(ranks.merge()), FormatError);
}

TEST(FlatMerge, ARangeIsExtractedAgain) {
  std::vector<float> logical(24);
  for (std::size_t i = 0; i < logical.size(); ++i) {
    logical[i] = static_cast<float>(i);
  }
  const Placement placement = flat("8/5:0+2+2,2+6+2 3", 4, 10);
  std::vector<float> local(10, -1.0F);
  extract(placement, ElementType::kF32, logical.data(), local.data());
  EXPECT_EQ(std::vector<double>(local.begin(), local.end()), held(placement, 0.0));
}

TEST(FlatMerge, FillGivesARangeTheValuesOfTheParameter) {
  const Placement placement = flat("8/4:0+2+2,2+6+2 3", 4, 7);
  std::vector<double> local(7);
  fill("a.weight", placement, 5, {}, ElementType::kF64, local.data());
  const std::vector<std::int64_t> offsets = logical_offsets(placement);
  for (std::size_t i = 0; i < local.size(); ++i) {
    EXPECT_EQ(local[i], fill_value("a.weight", static_cast<std::uint64_t>(offsets[i]), 5, {}));
  }
}

// --- random buckets ------------------------------------------------------------------------------

enum class FlatCut { kWhole, kEven, kGated, kPadded };

// A parameter and a layout; everything follows from these fields.
struct FlatCase {
  std::vector<std::int64_t> shape;  // of the local tensor, except that padding is added
  std::size_t cut_dim = 0;
  FlatCut cut = FlatCut::kWhole;
  int tp = 1;      // copies where nothing is cut
  int dp = 1;      // ranks over which a tensor's elements are cut at random
  int stages = 1;  // that hold tied copies, cut differently
  int addends = 1;
  bool is_scaled = false;
  ElementType type = ElementType::kF32;
  unsigned seed = 0;
};

std::string text_of(const FlatCase& c) {
  std::string text = "seed " + std::to_string(c.seed) + " " + std::string(name_of(c.type)) + " [";
  for (const std::int64_t size : c.shape) {
    text += std::to_string(size) + " ";
  }
  return text + "] cut " + std::to_string(static_cast<int>(c.cut)) + " of dimension " +
         std::to_string(c.cut_dim) + " tp " + std::to_string(c.tp) + " dp " + std::to_string(c.dp) +
         " stages " + std::to_string(c.stages) + " addends " + std::to_string(c.addends) +
         (c.is_scaled ? " scaled" : "");
}

Placement local_tensor(const FlatCase& c, int tp_rank) {
  Placement placement = whole(c.shape);
  if (c.cut == FlatCut::kWhole) {
    return placement;
  }
  DimPlacement& dim = placement.dims[c.cut_dim];
  const std::int64_t size = dim.local_size;
  if (c.cut == FlatCut::kGated) {  // two blocks of `size` rows on every rank
    dim = {2 * size,
           2 * size * c.tp,
           {{0, tp_rank * size, size}, {size, (c.tp + tp_rank) * size, size}}};
    return placement;
  }
  // In a padded dimension, the last rank's last row is padding, unless this leaves the rank
  // nothing.
  const bool padded = c.cut == FlatCut::kPadded && size > 1;
  const std::int64_t extent = padded && tp_rank + 1 == c.tp ? size - 1 : size;
  dim = {size, c.tp * size - (padded ? 1 : 0), {{0, tp_rank * size, extent}}};
  return placement;
}

class FlatTensor {
 public:
  explicit FlatTensor(const FlatCase& flat_case) : case_(flat_case), engine_(flat_case.seed) {
    std::int64_t count = 1;
    for (const std::int64_t size : local_tensor(case_, 0).logical_shape()) {
      count *= size;
    }
    logical_.assign(static_cast<std::size_t>(count), 0.0);
    for (int index = 0; index < case_.addends; ++index) {
      std::vector<double> values;
      for (double& total : logical_) {
        values.push_back(static_cast<double>(engine_() % 64));
        total += values.back();
      }
      add_addend(index, values);
    }
  }

  [[nodiscard]] Ranks& ranks() { return ranks_; }
  [[nodiscard]] const std::vector<double>& logical() const { return logical_; }
  [[nodiscard]] std::mt19937_64& engine() { return engine_; }

 private:
  void add_addend(int index, const std::vector<double>& logical) {
    for (int copy = 0; copy < case_.stages * case_.tp; ++copy) {
      Placement placement = local_tensor(case_, copy % case_.tp);
      placement.partial_index = index;
      placement.partial_count = case_.addends;
      placement.scale = case_.is_scaled ? 0.25 : 1.0;
      std::int64_t elements = 1;
      for (const DimPlacement& dim : placement.dims) {
        elements *= dim.local_size;
      }
      // Borders of buckets; some of them coincide.
      std::vector<std::int64_t> borders{0, elements};
      for (int rank = 1; rank < case_.dp; ++rank) {
        borders.push_back(static_cast<std::int64_t>(engine_() % (elements + 1)));
      }
      std::sort(borders.begin(), borders.end());
      for (std::size_t i = 0; i + 1 < borders.size(); ++i) {
        placement.flat = FlatRange{borders[i], borders[i + 1] - borders[i]};
        add(placement, logical);
      }
    }
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

  FlatCase case_;
  std::mt19937_64 engine_;
  Ranks ranks_;
  std::vector<double> logical_;
};

FlatCase random_flat_case(unsigned seed) {
  std::mt19937_64 engine(seed);
  const auto below = [&engine](unsigned limit) { return static_cast<int>(engine() % limit); };
  FlatCase c;
  c.seed = seed;
  const int dims = 1 + below(4);
  for (int dim = 0; dim < dims; ++dim) {
    c.shape.push_back(1 + below(5));
  }
  c.cut_dim = static_cast<std::size_t>(below(static_cast<unsigned>(dims)));
  c.cut = static_cast<FlatCut>(below(4));
  c.tp = 1 + below(3);
  c.dp = 1 + below(5);
  c.stages = 1 + below(2);
  c.addends = below(4) == 0 ? 2 : 1;
  c.is_scaled = below(4) == 0;
  constexpr std::array kTypes = {ElementType::kF64, ElementType::kF32, ElementType::kBF16};
  c.type = kTypes[static_cast<std::size_t>(below(3))];
  return c;
}

// The same case with one thing less, for every thing there is.
std::vector<FlatCase> smaller_cases(const FlatCase& c) {
  std::vector<FlatCase> smaller;
  const auto offer = [&](const std::function<void(FlatCase&)>& change) {
    FlatCase candidate = c;
    change(candidate);
    if (text_of(candidate) != text_of(c)) {
      smaller.push_back(std::move(candidate));
    }
  };
  offer([](FlatCase& x) { x.addends = 1; });
  offer([](FlatCase& x) { x.is_scaled = false; });
  offer([](FlatCase& x) { x.stages = 1; });
  offer([](FlatCase& x) { x.cut = FlatCut::kWhole; });
  offer([](FlatCase& x) { x.cut = FlatCut::kEven; });
  offer([](FlatCase& x) { x.tp = std::max(1, x.tp - 1); });
  offer([](FlatCase& x) { x.dp = std::max(1, x.dp - 1); });
  offer([](FlatCase& x) { x.type = ElementType::kF64; });
  for (std::size_t i = 0; i < c.shape.size(); ++i) {
    offer([i](FlatCase& x) { x.shape[i] = std::max<std::int64_t>(1, x.shape[i] - 1); });
    if (i != c.cut_dim && c.shape.size() > 1) {
      offer([i](FlatCase& x) {
        x.shape.erase(x.shape.begin() + static_cast<std::ptrdiff_t>(i));
        x.cut_dim -= i < x.cut_dim ? 1 : 0;
      });
    }
  }
  return smaller;
}

// The error of a case, or nothing.
using FlatProperty = std::function<std::optional<std::string>(const FlatCase&)>;

// Reports the smallest case that still fails.
void expect_for_random_flat_cases(const FlatProperty& property) {
  for (unsigned seed = 1; seed <= 600; ++seed) {
    FlatCase failing = random_flat_case(seed);
    std::optional<std::string> failure = property(failing);
    for (bool shrinks = failure.has_value(); shrinks;) {
      shrinks = false;
      for (const FlatCase& candidate : smaller_cases(failing)) {
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

TEST(FlatMergeRandom, MergeRestoresTheParameterExactly) {
  expect_for_random_flat_cases([](const FlatCase& c) -> std::optional<std::string> {
    FlatTensor tensor(c);
    const MergeResult result = tensor.ranks().merge();
    if (!result.findings.empty()) {
      return "unexpected finding: " + result.findings[0].message;
    }
    if (result.type != (c.addends > 1 || c.is_scaled ? ElementType::kF64 : c.type)) {
      return "result is of type " + std::string(name_of(result.type));
    }
    return values_of(result) == tensor.logical() ? std::nullopt : std::optional("values differ");
  });
}

TEST(FlatMergeRandom, ExtractGivesEveryRankItsRangeWithZeroPadding) {
  expect_for_random_flat_cases([](FlatCase c) -> std::optional<std::string> {
    c.addends = 1;
    c.is_scaled = false;
    FlatTensor tensor(c);
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

TEST(FlatMergeRandom, TextRoundTrips) {
  expect_for_random_flat_cases([](const FlatCase& c) -> std::optional<std::string> {
    FlatTensor tensor(c);
    for (const Shard& shard : tensor.ranks().shards()) {
      const std::string text = to_string(shard.record->placement);
      if (parse_placement(text) != shard.record->placement) {
        return text + " is read as " + to_string(parse_placement(text));
      }
    }
    return std::nullopt;
  });
}

// Ranks that hold each element of an addend.
std::map<std::int64_t, std::vector<int>> holders(FlatTensor& tensor, int addend) {
  std::map<std::int64_t, std::vector<int>> result;
  for (std::size_t i = 0; i < tensor.logical().size(); ++i) {
    result[static_cast<std::int64_t>(i)];
  }
  for (const Shard& shard : tensor.ranks().shards()) {
    if (shard.record->placement.partial_index == addend) {
      for (const std::int64_t offset : logical_offsets(shard.record->placement)) {
        if (offset >= 0) {
          result[offset].push_back(shard.rank);
        }
      }
    }
  }
  return result;
}

TEST(FlatMergeRandom, ARangeThatLacksIsAGapUnlessOthersHoldItsElements) {
  int gaps = 0;
  expect_for_random_flat_cases([&](const FlatCase& c) -> std::optional<std::string> {
    FlatTensor tensor(c);
    std::vector<Shard>& shards = tensor.ranks().shards();
    const auto at = static_cast<std::ptrdiff_t>(tensor.engine()() % shards.size());
    if (shards.size() == 1) {
      return std::nullopt;
    }
    const int addend = shards[static_cast<std::size_t>(at)].record->placement.partial_index;
    shards.erase(shards.begin() + at);
    const auto held_by = holders(tensor, addend);
    const bool complete = std::all_of(held_by.begin(), held_by.end(), [](const auto& element) {
      return !element.second.empty();
    });
    const bool lacks_addend = std::none_of(shards.begin(), shards.end(), [&](const Shard& shard) {
      return shard.record->placement.partial_index == addend;
    });
    const MergeResult result = tensor.ranks().merge();
    if (complete) {
      return result.findings.empty() && values_of(result) == tensor.logical()
                 ? std::nullopt
                 : std::optional("what others hold is not enough");
    }
    ++gaps;
    const bool found = std::any_of(
        result.findings.begin(), result.findings.end(), [&](const MergeFinding& finding) {
          return finding.defect ==
                 (lacks_addend ? MergeDefect::kAddendsMissing : MergeDefect::kGap);
        });
    return found && !result.has_tensor() ? std::nullopt : std::optional("no gap");
  });
  EXPECT_GT(gaps, 100);
}

TEST(FlatMergeRandom, OneFlippedBitInWhatSeveralHoldIsFoundAtItsIndex) {
  int flipped = 0;
  expect_for_random_flat_cases([&](FlatCase c) -> std::optional<std::string> {
    c.addends = 1;
    FlatTensor tensor(c);
    const auto held_by = holders(tensor, 0);
    const Shard& shard =
        tensor.ranks().shards()[tensor.engine()() % tensor.ranks().shards().size()];
    const std::vector<std::int64_t> offsets = logical_offsets(shard.record->placement);
    for (std::size_t i = 0; i < offsets.size(); ++i) {
      if (offsets[i] < 0 || held_by.at(offsets[i]).size() < 2) {
        continue;
      }
      ++flipped;
      tensor.ranks().bytes(shard.rank)[i * element_size(c.type)] ^= std::byte{1};
      const MergeResult result = tensor.ranks().merge();
      if (result.findings.size() != 1 ||
          result.findings[0].defect != MergeDefect::kReplicasDisagree || !result.has_tensor()) {
        return "not found, or not alone";
      }
      std::int64_t offset = offsets[i];
      std::string index;
      for (std::size_t dim = result.shape.size(); dim-- > 0;) {
        index = std::to_string(offset % result.shape[dim]) + (index.empty() ? "" : ", ") + index;
        offset /= result.shape[dim];
      }
      const std::string& message = result.findings[0].message;
      const auto& ranks = result.findings[0].ranks;
      if (message.find("first at [" + index + "]") == std::string::npos ||
          std::find(ranks.begin(), ranks.end(), shard.rank) == ranks.end()) {
        return "[" + index + "] of rank " + std::to_string(shard.rank) + " is not in: " + message;
      }
      return std::nullopt;
    }
    return std::nullopt;
  });
  EXPECT_GT(flipped, 100);
}

}  // namespace
}  // namespace ttrace
