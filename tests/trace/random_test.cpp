#include "trace/base/random.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace ttrace
