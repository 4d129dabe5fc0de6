#include "analysis/findings/wording.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace ttrace {
namespace {

TEST(Wording, NumbersHaveThreeOrFourSignificantDigits) {
  EXPECT_EQ(short_number(0.0212345), "0.0212");
  EXPECT_EQ(short_number(31.0), "31");
  EXPECT_EQ(short_number(std::numeric_limits<double>::infinity()), "inf");
  EXPECT_EQ(factor_text(0.5), "0.5000");
  EXPECT_EQ(factor_text(1.0021), "1.002");
  EXPECT_EQ(near_one_text(-2.014e-6), "(1 - 2.01e-06)");
  EXPECT_EQ(near_one_text(0.003), "(1 + 0.003)");
}

TEST(Wording, RanksAreFoldedIntoRanges) {
  EXPECT_EQ(ranks_text({}), "no rank");
  EXPECT_EQ(ranks_text(std::vector<int>{3}), "rank 3");
  EXPECT_EQ(ranks_text(std::vector<int>{0, 1, 5}), "ranks 0, 1, 5");
  EXPECT_EQ(ranks_text(std::vector<int>{0, 1, 2, 3, 6, 8, 9, 10}), "ranks 0-3, 6, 8-10");
}

TEST(Wording, ShapesAndIndices) {
  EXPECT_EQ(shape_text({}), "scalar");
  EXPECT_EQ(shape_text(std::vector<std::int64_t>{4, 128}), "4x128");
  EXPECT_EQ(index_text(std::vector<std::int64_t>{1, 0, 37}), "[1, 0, 37]");
  EXPECT_EQ(unravel(23, std::vector<std::int64_t>{2, 3, 4}), (std::vector<std::int64_t>{1, 2, 3}));
  EXPECT_EQ(counted(1, "rank"), "1 rank");
  EXPECT_EQ(counted(0, "rank"), "0 ranks");
}

}  // namespace
}  // namespace ttrace
