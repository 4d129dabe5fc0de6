// The positions of parameters in flat buckets and a rank's part of them, without communication.
#include "flat_buckets.h"

#include "faults/planted.h"
#include "main_gradients.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace {

using megatron_mini::flat_buckets;
using megatron_mini::FlatBucket;
using megatron_mini::Group;
using megatron_mini::MainGradients;
using megatron_mini::ModelParameter;
using megatron_mini::owned_parts;
using megatron_mini::OwnedPart;
using megatron_mini::faults::parts_with_bug;
using ::testing::ElementsAre;

Group rank_of(int rank, int size) {
  return {.name = "dp_cp", .rank = rank, .size = size};
}

std::vector<ModelParameter> parameters(const std::vector<std::vector<std::int64_t>>& shapes) {
  std::vector<ModelParameter> result;
  for (const auto& shape : shapes) {
    const std::string path = "p" + std::to_string(result.size());
    result.push_back({.path = path, .tensor = at::zeros(shape).requires_grad_(true)});
  }
  return result;
}

TEST(FlatBuckets, DividedOneIsPaddedToAMultipleOf64PerRank) {
  const auto list = parameters({{10, 10}, {93}});  // 193 elements
  EXPECT_EQ(flat_buckets(list, rank_of(0, 3), true).at(0).size, 384);
  EXPECT_EQ(flat_buckets(list, rank_of(0, 1), true).at(0).size, 256);
  EXPECT_EQ(flat_buckets(list, rank_of(0, 3), false).at(0).size, 193);
}

TEST(FlatBuckets, ParametersFillOneUntilTheNextWouldBeTooMuch) {
  const auto buckets =
      flat_buckets(parameters({{300, 300}, {200, 200}, {100, 100}, {200, 200}}), {}, false);
  std::vector<std::vector<std::size_t>> members;
  for (const FlatBucket& bucket : buckets) {
    members.emplace_back();
    for (const auto& member : bucket.members) {
      members.back().push_back(member.parameter);
    }
  }
  EXPECT_THAT(members, ElementsAre(ElementsAre(0), ElementsAre(1, 2), ElementsAre(3)));
  EXPECT_EQ(buckets.at(1).members.at(1).offset, 40000);
}

// A bucket of 384 elements, 128 on each rank: cuts go through rows.
TEST(FlatBuckets, PartsOfTheRanksAreTheParametersWithoutGapOrOverlap) {
  const auto list = parameters({{10, 10}, {7}, {20, 9}});
  std::vector<at::Tensor> values;
  std::vector<at::Tensor> joined;
  for (const auto& parameter : list) {
    values.push_back(at::arange(parameter.tensor.numel()).view(parameter.tensor.sizes()));
    joined.push_back(at::full_like(values.back(), -1));
  }
  std::vector<std::size_t> counts;
  for (int rank = 0; rank < 3; ++rank) {
    const auto buckets = flat_buckets(list, rank_of(rank, 3), true);
    const auto parts = owned_parts(list, buckets, true);
    counts.push_back(parts.size());
    for (const OwnedPart& part : parts) {
      EXPECT_TRUE(part.of(joined[part.parameter]).eq(-1).all().item<bool>());
      part.of(joined[part.parameter]).copy_(part.of(values[part.parameter]));
    }
  }
  EXPECT_THAT(counts, ElementsAre(3, 1, 1));
  for (std::size_t i = 0; i < list.size(); ++i) {
    EXPECT_TRUE(joined[i].equal(values[i])) << list[i].path;
  }
}

TEST(FlatBuckets, UndividedPartIsTheParameterItself) {
  const auto list = parameters({{2, 3}});
  const auto parts = owned_parts(list, flat_buckets(list, {}, false), false);
  ASSERT_EQ(parts.size(), 1U);
  EXPECT_FALSE(parts[0].first.has_value());
  EXPECT_THAT(parts[0].of(list[0].tensor).sizes().vec(), ElementsAre(2, 3));
}

at::Tensor gradient_of(MainGradients& gradients, const at::Tensor& parameter) {
  (parameter * 2.0).sum().backward();
  gradients.accumulate(0);
  return gradients.reduced().at(0);
}

TEST(GradientBuckets, ThoseNotZeroedKeepTheLastStepsGradients) {
  const auto list = parameters({{2, 3}});
  const auto gradients = parts_with_bug("grads-not-zeroed").gradients(list, {});
  EXPECT_TRUE(gradient_of(*gradients, list[0].tensor).equal(at::full({2, 3}, 2.0)));
  gradients->zero(1);
  EXPECT_TRUE(gradient_of(*gradients, list[0].tensor).equal(at::full({2, 3}, 4.0)));
}

TEST(GradientBuckets, ThoseThatParametersWereGatheredInBeginWithThemFromTheSecondStepOn) {
  auto list = parameters({{2, 3}});
  list[0].tensor.detach().fill_(7.0);
  const auto gradients = parts_with_bug("gathered-parameters-left-in-grads").gradients(list, {});
  gradients->zero(0);
  EXPECT_TRUE(gradient_of(*gradients, list[0].tensor).equal(at::full({2, 3}, 2.0)));
  gradients->zero(1);
  EXPECT_TRUE(gradient_of(*gradients, list[0].tensor).equal(at::full({2, 3}, 9.0)));
}

}  // namespace
