// Redistribution of the stream between real ranks, all of which divide the samples.
#include "redistribution.h"

#include "ranks.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstdint>

namespace {

using megatron_mini::Parallel;
using megatron_mini::TokenPlaces;
using megatron_mini::testing::world;

constexpr std::int64_t kStreamWidth = 3;

Parallel sharing(bool sequence_parallel) {
  return {.world = world(), .tp = world(), .dp = {}, .sequence_parallel = sequence_parallel};
}

// [s, b, h]: two rows and two samples for each rank.
at::Tensor whole() {
  const std::int64_t size = 2 * world().size;
  return at::arange(size * size * kStreamWidth, at::kDouble).view({size, size, kStreamWidth});
}

at::Tensor part_of(const at::Tensor& tensor, std::int64_t dim) {
  return tensor.narrow(dim, 2 * world().rank, 2);
}

class Redistribution : public ::testing::TestWithParam<bool> {
 protected:
  // What a rank has of the stream where it is not divided.
  [[nodiscard]] at::Tensor stream() const { return GetParam() ? part_of(whole(), 0) : whole(); }
};

TEST_P(Redistribution, GivesEachRankItsSamplesAndBackwardTheGradientOfAll) {
  const at::Tensor leaf = stream().clone().requires_grad_(true);
  const at::Tensor mine = divide_samples(leaf, sharing(GetParam()), world());
  EXPECT_TRUE(mine.equal(part_of(whole(), 1)));
  mine.backward(part_of(whole(), 1) * 2.0);
  EXPECT_TRUE(leaf.grad().equal(stream() * 2.0));
}

TEST_P(Redistribution, JoinsTheSamplesAndBackwardGivesEachRankItsGradient) {
  const at::Tensor leaf = part_of(whole(), 1).clone().requires_grad_(true);
  const at::Tensor joined = join_samples(leaf, sharing(GetParam()), world());
  EXPECT_TRUE(joined.equal(stream()));
  joined.backward(stream() * 2.0);
  EXPECT_TRUE(leaf.grad().equal(part_of(whole(), 1) * 2.0));
}

INSTANTIATE_TEST_SUITE_P(MegatronMini, Redistribution, ::testing::Bool());

TEST(RedistributedPlaces, AreThoseOfTheSamples) {
  const std::int64_t size = 2 * world().size;
  const at::Tensor numbers = at::arange(4 * size, at::kLong).view({4, size});
  const TokenPlaces places{.positions = numbers,
                           .documents = {},
                           .rows = at::arange(4),
                           .samples = at::arange(size),
                           .draw = 7};
  const TokenPlaces mine = part_of_samples(places, world());
  EXPECT_TRUE(mine.positions.equal(part_of(numbers, 1)));
  EXPECT_FALSE(mine.documents.defined());
  EXPECT_TRUE(mine.rows.equal(places.rows));
  EXPECT_TRUE(mine.samples.equal(part_of(places.samples, 0)));
}

}  // namespace
