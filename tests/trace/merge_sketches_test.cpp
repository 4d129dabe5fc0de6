// Sketches of shards, put together, are the sketch of what merge() puts together.
#include "trace/merge/merge_sketches.h"

#include "support/tensor_bytes.h"
#include "trace/shards.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace ttrace::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

DimPlacement part(std::int64_t size, std::int64_t first, std::int64_t count) {
  return {count, size, {{0, first, count}}};
}

// Rows [first, first + count) of 64 x 32.
Placement rows(std::int64_t first, std::int64_t count) {
  Placement placement = whole(std::vector<std::int64_t>{64, 32});
  placement.dims[0] = part(64, first, count);
  return placement;
}

void expect_sketch_of_merged(const Ranks& ranks, std::vector<Shard> shards) {
  const MergeResult merged = merge_sketches(shards);
  const MergeResult expected = ranks.merge();
  EXPECT_THAT(merged.findings, IsEmpty());
  EXPECT_EQ(merged.shape, expected.shape);
  EXPECT_EQ(merged.held, expected.held);
  ASSERT_TRUE(merged.sketch);
  ASSERT_TRUE(expected.has_tensor());
  const Sketch sketch = sketch_of(expected.type, expected.bytes, whole(expected.shape));
  ASSERT_EQ(merged.sketch->cells.size(), sketch.cells.size());
  for (std::size_t i = 0; i < sketch.cells.size(); ++i) {
    EXPECT_NEAR(merged.sketch->cells[i], sketch.cells[i], 1e-5);
  }
}

TEST(MergeSketches, ShardsAndReplicas) {
  Ranks ranks;
  const std::vector<double> upper = normal_values(40 * 32, 1);
  const std::vector<double> lower = normal_values(24 * 32, 2);
  ranks.add(rows(0, 40), ElementType::kBF16, upper);
  ranks.add(rows(40, 24), ElementType::kBF16, lower);
  ranks.add(rows(0, 40), ElementType::kBF16, upper);
  expect_sketch_of_merged(ranks, ranks.shards());
}

TEST(MergeSketches, AddendsWithAScale) {
  Ranks ranks;
  for (int i = 0; i < 3; ++i) {
    Placement placement = rows(0, 64);
    placement.partial_index = i;
    placement.partial_count = 3;
    placement.partial_over = "dp";
    placement.scale = 0.25;
    ranks.add(placement, ElementType::kF32, normal_values(64 * 32, static_cast<unsigned>(3 + i)));
  }
  expect_sketch_of_merged(ranks, ranks.shards());
  EXPECT_TRUE(merge_sketches(ranks.shards()).sketch->row_squares.empty());
}

TEST(MergeSketches, FlatRangesOfASharedParameter) {
  Ranks ranks;
  const std::vector<double> values = normal_values(64 * 32, 6);
  const std::vector<std::int64_t> cuts = {0, 700, 701, 2048};
  for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
    Placement placement = rows(0, 64);
    placement.flat = FlatRange{cuts[i], cuts[i + 1] - cuts[i]};
    ranks.add(
        placement, ElementType::kF32, {values.begin() + cuts[i], values.begin() + cuts[i + 1]});
  }
  expect_sketch_of_merged(ranks, ranks.shards());
}

TEST(MergeSketches, AGapAMissingAddendAndReplicasThatDisagree) {
  Ranks gap;
  gap.add(rows(0, 40), ElementType::kF32, normal_values(40 * 32, 7));
  const MergeResult with_gap = merge_sketches(gap.shards());
  ASSERT_THAT(with_gap.findings, SizeIs(1));
  EXPECT_EQ(with_gap.findings.front().defect, MergeDefect::kGap);
  EXPECT_FALSE(with_gap.sketch);

  Ranks missing;
  Placement addend = rows(0, 64);
  addend.partial_count = 2;
  missing.add(addend, ElementType::kF32, normal_values(64 * 32, 8));
  const MergeResult without_addend = merge_sketches(missing.shards());
  ASSERT_THAT(without_addend.findings, SizeIs(1));
  EXPECT_EQ(without_addend.findings.front().defect, MergeDefect::kAddendsMissing);

  Ranks replicas;
  std::vector<double> values = normal_values(64 * 32, 9);
  replicas.add(rows(0, 64), ElementType::kF32, values);
  replicas.add(rows(0, 64), ElementType::kF32, values);
  values[100] += 0.5;
  replicas.add(rows(0, 64), ElementType::kF32, values);
  const MergeResult disagreeing = merge_sketches(replicas.shards());
  ASSERT_THAT(disagreeing.findings, SizeIs(1));
  EXPECT_EQ(disagreeing.findings.front().defect, MergeDefect::kReplicasDisagree);
  EXPECT_THAT(disagreeing.findings.front().ranks, ElementsAre(0, 2));
  EXPECT_NEAR(disagreeing.findings.front().difference, 0.5, 1e-6);
  EXPECT_TRUE(disagreeing.sketch);
}

}  // namespace
}  // namespace ttrace::testing
