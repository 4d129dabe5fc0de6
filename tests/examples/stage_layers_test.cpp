// The layers of a pipeline stage, computed without any rank.
#include "stage_layers.h"

#include "error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace {

using megatron_mini::LayerRange;
using megatron_mini::Parallel;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Cut {
  int stages = 1;
  int chunks = 1;
  std::optional<std::int64_t> first{};
  std::optional<std::int64_t> last{};
};

Parallel stage_of(const Cut& cut, int stage) {
  return {.world = {},
          .tp = {},
          .dp = {},
          .pp = {.name = "pp", .rank = stage, .size = cut.stages},
          .chunks = cut.chunks,
          .first_stage_layers = cut.first,
          .last_stage_layers = cut.last};
}

// The layers of all virtual stages, in the order in which a micro-batch goes through them.
std::vector<LayerRange> ranges(std::int64_t layers, const Cut& cut) {
  std::vector<LayerRange> result;
  check_stages(layers, stage_of(cut, 0));
  for (int chunk = 0; chunk < cut.chunks; ++chunk) {
    for (int stage = 0; stage < cut.stages; ++stage) {
      result.push_back(layers_of(layers, stage_of(cut, stage), chunk));
    }
  }
  return result;
}

void expect_all_layers_once(std::int64_t layers, const Cut& cut) {
  std::int64_t next = 0;
  for (const LayerRange& range : ranges(layers, cut)) {
    EXPECT_EQ(range.first, next);
    EXPECT_GE(range.count, 1);
    next += range.count;
  }
  EXPECT_EQ(next, layers);
}

TEST(StageLayers, FollowEachOtherThroughAllVirtualStages) {
  expect_all_layers_once(3, {});
  expect_all_layers_once(6, {.stages = 3});
  expect_all_layers_once(12, {.stages = 2, .chunks = 3});
  expect_all_layers_once(6, {.stages = 4, .first = 1, .last = 1});
  expect_all_layers_once(7, {.stages = 4, .first = 1});
  expect_all_layers_once(7, {.stages = 4, .last = 4});
  expect_all_layers_once(5, {.stages = 2, .first = 4, .last = 1});
  expect_all_layers_once(6, {.stages = 2, .chunks = 2, .last = 2});
  expect_all_layers_once(14, {.stages = 4, .chunks = 2, .first = 4, .last = 2});
  expect_all_layers_once(16, {.stages = 3, .chunks = 2, .first = 8});
}

TEST(StageLayers, UnevenStagesHaveTheirOwnNumbers) {
  EXPECT_THAT(ranges(6, {.stages = 2, .chunks = 2, .last = 2}),
              ElementsAre(LayerRange{0, 2}, LayerRange{2, 1}, LayerRange{3, 2}, LayerRange{5, 1}));
  EXPECT_THAT(ranges(6, {.stages = 4, .first = 1, .last = 1}),
              ElementsAre(LayerRange{0, 1}, LayerRange{1, 2}, LayerRange{3, 2}, LayerRange{5, 1}));
}

std::string refusal(std::int64_t layers, const Cut& cut) {
  try {
    check_stages(layers, stage_of(cut, 0));
  } catch (const megatron_mini::UsageError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(StageLayers, ImpossibleCutsAreRefusedWithTheNumbersThatClash) {
  EXPECT_THAT(
      refusal(3, {.stages = 2}),
      HasSubstr("the number of layers, 3, must be a positive multiple of the 2 pipeline stages"));
  EXPECT_THAT(
      refusal(6, {.stages = 2, .chunks = 2}),
      HasSubstr(
          "the number of layers, 6, must be a positive multiple of the 4 virtual pipeline stages"));
  EXPECT_THAT(
      refusal(6, {.stages = 4, .last = 1}),
      HasSubstr(
          "the number of layers that are left, 5, must be a positive multiple of the 3 pipeline"));
  EXPECT_THAT(
      refusal(4, {.stages = 3, .first = 2, .last = 2}),
      HasSubstr(
          "the number of layers that are left, 0, must be a positive multiple of the 1 pipeline"));
  EXPECT_THAT(refusal(6, {.stages = 2, .first = 2, .last = 2}),
              HasSubstr("add up to 4, but the model has layers 6"));
  EXPECT_THAT(refusal(6, {.stages = 2, .chunks = 2, .last = 3}),
              HasSubstr("--last-stage-layers 3 must be a positive multiple of --vpp 2"));
  EXPECT_THAT(refusal(6, {.stages = 2, .first = 0}),
              HasSubstr("--first-stage-layers 0 must be a positive multiple"));
  EXPECT_THAT(refusal(6, {.first = 3}), HasSubstr("--first-stage-layers 3 needs --pp 2 or more"));
}

}  // namespace
