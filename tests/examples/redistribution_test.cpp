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

constexpr std::int64_t kHidden = 3;

Parallel parallel(bool sequence_parallel) {
  return {.world = world(), .tp = world(), .dp = {}, .sequence_parallel = sequence_parallel};
}

// [s, b, h]: two rows and two samples for each rank.
at::Tensor whole() {
  const std::int64_t size = 2 * world().size;
  return at::arange(size * size * kHidden, at::kDouble).view({size, size, kHidden});
}

at::Tensor own(const at::Tensor& tensor, std::int64_t dim) {
  return tensor.narrow(dim, 2 * world().rank, 2);
}

class Redistribution : public ::testing::TestWithParam<bool> {
 protected:
  // What a rank has of the stream where it is not divided.
  [[nodiscard]] at::Tensor stream() const { return GetParam() ? own(whole(), 0) : whole(); }
};

TEST_P(Redistribution, GivesEachRankItsSamplesAndBackwardTheGradientOfAll) {
  const at::Tensor leaf = stream().clone().requires_grad_(true);
  const at::Tensor mine = divide_samples(leaf, parallel(GetParam()), world());
  EXPECT_TRUE(mine.equal(own(whole(), 1)));
  mine.backward(own(whole(), 1) * 2.0);
  EXPECT_TRUE(leaf.grad().equal(stream() * 2.0));
}

TEST_P(Redistribution, JoinsTheSamplesAndBackwardGivesEachRankItsGradient) {
  const at::Tensor leaf = own(whole(), 1).clone().requires_grad_(true);
  const at::Tensor joined = join_samples(leaf, parallel(GetParam()), world());
  EXPECT_TRUE(joined.equal(stream()));
  joined.backward(stream() * 2.0);
  EXPECT_TRUE(leaf.grad().equal(own(whole(), 1) * 2.0));
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
  EXPECT_TRUE(mine.positions.equal(own(numbers, 1)));
  EXPECT_FALSE(mine.documents.defined());
  EXPECT_TRUE(mine.rows.equal(places.rows));
  EXPECT_TRUE(mine.samples.equal(own(places.samples, 0)));
}

}  // namespace
