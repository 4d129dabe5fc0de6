#include "trace/base/random.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <numeric>
#include <vector>

namespace ttrace {
namespace {

// Numbers of splitmix64's published source, with the seeds 0 and 1234567.
TEST(Random, IsSplitmix64) {
  EXPECT_EQ(random_bits(0, 0), 0xe220a8397b1dcdafU);
  EXPECT_EQ(random_bits(0, 1), 0x6e789e6aa1b965f4U);
  EXPECT_EQ(random_bits(0, 2), 0x06c45d188009454fU);
  EXPECT_EQ(random_bits(1234567), 6457827717110365317U);
  EXPECT_EQ(random_bits(1234567, 1), 3203168211198807973U);
}

std::vector<int> shuffled(std::uint64_t seed) {
  std::vector<int> values(20);
  std::iota(values.begin(), values.end(), 0);
  shuffle(values, seed);
  return values;
}

TEST(Random, ShufflesIntoAnOrderThatFollowsFromTheSeed) {
  std::vector<int> values = shuffled(1);
  EXPECT_EQ(values, shuffled(1));
  EXPECT_NE(values, shuffled(2));
  std::ranges::sort(values);
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(values.at(static_cast<std::size_t>(i)), i);
  }
}

// 6000 orders of three values: each of the six is there about a thousand times.
TEST(Random, MakesEveryOrderAsLikelyAsAnyOtherOne) {
  std::map<std::vector<int>, int> times;
  for (std::uint64_t seed = 0; seed < 6000; ++seed) {
    std::vector<int> values = {0, 1, 2};
    shuffle(values, seed);
    ++times[values];
  }
  ASSERT_EQ(times.size(), 6U);
  for (const auto& [order, count] : times) {
    EXPECT_NEAR(count, 1000, 120);  // four standard deviations
  }
}

}  // namespace
}  // namespace ttrace
