// Sparse rows: tokens that a router sent to an expert, put back by their global number.
#include "shards.h"
#include "trace/merge/merge.h"

#include <ttrace/error.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

namespace ttrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::logical_offsets;
using testing::Ranks;
using ::testing::SizeIs;
using testing::values_of;

using Rows = std::vector<std::int64_t>;

// Local rows that are these of `size` logical ones, all `columns` of each.
Placement rows_of(const Rows& rows, std::int64_t size, std::int64_t columns) {
  Placement placement = whole(std::vector<std::int64_t>{std::ssize(rows), columns});
  placement.dims[0] = index_map(rows, size);
  placement.dims[0].sparse = true;
  return placement;
}

// Every element is its logical offset plus one, so that zero is nobody's.
void add(Ranks& ranks, const Placement& placement) {
  std::vector<double> values;
  for (const std::int64_t offset : logical_offsets(placement)) {
    values.push_back(offset < 0 ? -1.0 : static_cast<double>(offset + 1));
  }
  ranks.add(placement, ElementType::kF32, values);
}

TEST(SparseMerge, RowsThatNobodyHoldsAreZeroAndSaidToBe) {
  Ranks ranks;
  add(ranks, rows_of({5, 0}, 6, 2));
  add(ranks, rows_of({3}, 6, 2));
  const MergeResult result = ranks.merge();
  EXPECT_THAT(result.findings, IsEmpty());
  EXPECT_THAT(values_of(result), ElementsAre(1, 2, 0, 0, 0, 0, 7, 8, 0, 0, 11, 12));
  ASSERT_TRUE(result.held.has_value());
  EXPECT_EQ(result.held->dim, 0u);
  EXPECT_EQ(result.held->rows, (IndexSet{{0, 1}, {3, 4}, {5, 6}}));
}

TEST(SparseMerge, ExpertWithoutTokensIsATensorOfZeros) {
  Ranks ranks;
  add(ranks, rows_of({}, 2, 2));
  const MergeResult result = ranks.merge();
  EXPECT_THAT(result.findings, IsEmpty());
  EXPECT_TRUE(result.has_tensor());
  EXPECT_EQ(values_of(result), std::vector<double>(4, 0.0));
  EXPECT_THAT(result.held->rows, IsEmpty());
}

TEST(SparseMerge, PaddingRowsAreNobodys) {
  Ranks ranks;
  add(ranks, rows_of({1, kPadding, 0, kPadding}, 3, 1));
  const MergeResult result = ranks.merge();
  EXPECT_THAT(values_of(result), ElementsAre(1, 2, 0));
  EXPECT_EQ(result.held->rows, (IndexSet{{0, 2}}));
}

TEST(SparseMerge, AllRowsOfAnExpertThatGetsEveryToken) {
  Ranks ranks;
  add(ranks, rows_of({0, 1}, 2, 1));
  const MergeResult result = ranks.merge();
  EXPECT_THAT(values_of(result), ElementsAre(1, 2));
  EXPECT_EQ(result.held->rows, (IndexSet{{0, 2}}));
}

TEST(SparseMerge, ColumnsThatLackInAHeldRowAreAGap) {
  Placement left = rows_of({4, 1}, 6, 2);
  left.dims[1] = {1, 2, {{0, 0, 1}}};
  Placement right = rows_of({4}, 6, 2);
  right.dims[1] = {1, 2, {{0, 1, 1}}};
  Ranks ranks;
  add(ranks, left);
  add(ranks, right);
  const MergeResult result = ranks.merge();
  ASSERT_THAT(result.findings, SizeIs(1));
  EXPECT_EQ(result.findings[0].defect, MergeDefect::kGap);
  EXPECT_EQ(result.findings[0].message, "no rank holds [1, 1]; the rest is on ranks 0,1");
}

TEST(SparseMerge, AnAddendThatLacksARowOfAnotherHasAGap) {
  Ranks ranks;
  for (int index = 0; index < 2; ++index) {
    Placement placement = rows_of(index == 0 ? Rows{0, 2} : Rows{0}, 4, 1);
    placement.partial_index = index;
    placement.partial_count = 2;
    placement.partial_over = "etp";
    add(ranks, placement);
  }
  const MergeResult result = ranks.merge();
  ASSERT_THAT(result.findings, SizeIs(1));
  EXPECT_EQ(result.findings[0].message,
            "addend 1 of 2 over etp: no rank holds [2, 0]; the rest is on rank 1");
}

TEST(SparseMerge, AddendsOfHeldRowsAreSummed) {
  Ranks ranks;
  for (int index = 0; index < 2; ++index) {
    Placement placement = rows_of({3, 1}, 4, 1);
    placement.partial_index = index;
    placement.partial_count = 2;
    add(ranks, placement);
  }
  EXPECT_THAT(values_of(ranks.merge()), ElementsAre(0, 4, 0, 8));
}

TEST(SparseMerge, RowOnTwoRanksInDifferentSetsIsAnOverlap) {
  Ranks ranks;
  add(ranks, rows_of({0, 1}, 4, 1));
  add(ranks, rows_of({1, 3}, 4, 1));
  const MergeResult result = ranks.merge();
  ASSERT_THAT(result.findings, SizeIs(1));
  EXPECT_EQ(result.findings[0].defect, MergeDefect::kOverlap);
  EXPECT_THAT(result.findings[0].message, HasSubstr("[1, 0] is held by rank 0"));
}

TEST(SparseMerge, CopiesInAnotherOrderAgree) {
  Ranks ranks;
  add(ranks, rows_of({4, 0, 2}, 6, 2));
  add(ranks, rows_of({0, 2, 4}, 6, 2));
  EXPECT_THAT(ranks.merge().findings, IsEmpty());
}

TEST(SparseMerge, RanksMustAgreeOnWhatIsSparse) {
  Ranks ranks;
  add(ranks, rows_of({0}, 2, 1));
  Placement dense = rows_of({1}, 2, 1);
  dense.dims[0].sparse = false;
  add(ranks, dense);
  const MergeResult result = ranks.merge();
  ASSERT_THAT(result.findings, SizeIs(1));
  EXPECT_EQ(result.findings[0].defect, MergeDefect::kShapesContradict);
  EXPECT_EQ(result.findings[0].message,
            "the sparse dimension differs between ranks: 0 on rank 0, none on rank 1");
}

TEST(SparseMerge, CommonRowsAreWhatBothSidesHold) {
  Ranks left;
  add(left, rows_of({0, 1, 3}, 4, 2));
  Ranks right;
  add(right, rows_of({3, 2, 1}, 4, 2));
  MergeResult a = left.merge();
  MergeResult b = right.merge();
  keep_common_rows(a, b);
  EXPECT_THAT(values_of(a), ElementsAre(0, 0, 3, 4, 0, 0, 7, 8));
  EXPECT_EQ(values_of(a), values_of(b));
  EXPECT_EQ(a.held->rows, (IndexSet{{0, 2}, {3, 4}})) << "what was held stays known";
}

TEST(SparseMerge, CommonRowsWithASideThatHoldsAllLeaveItsFileAlone) {
  Ranks left;
  left.add(whole(std::vector<std::int64_t>{3, 1}), ElementType::kF32, {1, 2, 3});
  Ranks right;
  add(right, rows_of({1}, 3, 1));
  MergeResult a = left.merge();
  MergeResult b = right.merge();
  keep_common_rows(a, b);
  EXPECT_THAT(values_of(a), ElementsAre(0, 2, 0));
  EXPECT_THAT(values_of(left.merge()), ElementsAre(1, 2, 3));
}

TEST(SparseMerge, CommonRowsOfAnInnerDimension) {
  Ranks left;
  Placement placement = whole(std::vector<std::int64_t>{2, 2});
  placement.dims[1] = index_map(Rows{0, 2}, 3);
  placement.dims[1].sparse = true;
  left.add(placement, ElementType::kF64, {1, 2, 3, 4});
  Ranks right;
  placement.dims[1] = index_map(Rows{2, 1}, 3);
  placement.dims[1].sparse = true;
  right.add(placement, ElementType::kF64, {2, 9, 4, 9});
  MergeResult a = left.merge();
  MergeResult b = right.merge();
  keep_common_rows(a, b);
  EXPECT_THAT(values_of(a), ElementsAre(0, 0, 2, 0, 0, 4));
  EXPECT_EQ(values_of(a), values_of(b));
}

TEST(SparseMerge, EightRanksOfThousandsOfSingleRowsStayQuick) {
  // Every rank holds 4096 rows of 65536 in an order of its own, and every other one is a copy.
  constexpr std::int64_t kLogical = 65536;
  constexpr std::int64_t kHeld = 4096;
  std::mt19937_64 engine(11);
  Rows rows;
  for (std::int64_t row = 0; row < kLogical; ++row) {
    rows.push_back(row);
  }
  std::shuffle(rows.begin(), rows.end(), engine);
  Ranks ranks;
  for (int rank = 0; rank < 8; ++rank) {
    const auto first = rows.begin() + (rank / 2) * kHeld;
    Rows mine(first, first + kHeld);
    std::shuffle(mine.begin(), mine.end(), engine);
    const Placement placement = rows_of(mine, kLogical, 2);
    EXPECT_EQ(parse_placement(to_string(placement)), placement);
    add(ranks, placement);
  }
  const MergeResult result = ranks.merge();
  EXPECT_THAT(result.findings, IsEmpty());
  EXPECT_EQ(size_of(result.held->rows), 4 * kHeld);
  std::vector<double> expected(2 * kLogical, 0.0);
  for (std::int64_t i = 0; i < 4 * kHeld; ++i) {
    const auto at = static_cast<std::size_t>(2 * rows[static_cast<std::size_t>(i)]);
    expected[at] = static_cast<double>(at + 1);
    expected[at + 1] = static_cast<double>(at + 2);
  }
  EXPECT_EQ(values_of(result), expected);
}

TEST(SparseMerge, ManyRowsThatAreHeldTwiceAreToldQuickly) {
  // Rank r holds 4096 rows from 2048 r on, one by one, backwards: neighbours share half of them.
  constexpr std::int64_t kHeld = 4096;
  Ranks ranks;
  for (std::int64_t rank = 0; rank < 8; ++rank) {
    Rows mine;
    for (std::int64_t i = kHeld; i-- > 0;) {
      mine.push_back(rank * kHeld / 2 + i);
    }
    add(ranks, rows_of(mine, 8 * kHeld, 1));
  }
  const MergeResult result = ranks.merge();
  ASSERT_THAT(result.findings, SizeIs(1));
  EXPECT_THAT(result.findings[0].message, HasSubstr("[2048:4096, 0] is held by rank 0"));
}

}  // namespace
}  // namespace ttrace
