#include "trace/place/boxes.h"

#include <ttrace/error.h>
#include <ttrace/placement.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace ttrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Shape = std::vector<std::int64_t>;

TEST(Placement, WholeIsTheIdentity) {
  const Placement placement = whole(Shape{4, 0, 3});
  EXPECT_TRUE(placement.is_whole());
  EXPECT_THAT(placement.local_shape(), ElementsAre(4, 0, 3));
  EXPECT_THAT(placement.logical_shape(), ElementsAre(4, 0, 3));
  EXPECT_TRUE(placement.dims[1].segments.empty());
}

TEST(Placement, CutPaddedPartialOrScaledIsNotWhole) {
  EXPECT_FALSE(parse_placement("4/2:0+0+2").is_whole());
  EXPECT_FALSE(parse_placement("3/4:0+0+3").is_whole());
  EXPECT_FALSE(parse_placement("2/2:0+1+1,1+0+1").is_whole());
  EXPECT_FALSE(parse_placement("4 partial=0/2:tp").is_whole());
  EXPECT_FALSE(parse_placement("4 scale=0x1p-1").is_whole());
}

TEST(Placement, RectanglesAreTheCrossProductOrderedByLocalStart) {
  const Placement placement = parse_placement("8/4:0+0+2,2+6+2 3 10/6:0+2+3,3+7+3");
  const std::vector<Rectangle> boxes = rectangles(placement);
  ASSERT_EQ(boxes.size(), 4u);
  EXPECT_THAT(boxes[0].local_start, ElementsAre(0, 0, 0));
  EXPECT_THAT(boxes[1].local_start, ElementsAre(0, 0, 3));
  EXPECT_THAT(boxes[2].local_start, ElementsAre(2, 0, 0));
  EXPECT_THAT(boxes[3].local_start, ElementsAre(2, 0, 3));
  EXPECT_THAT(boxes[1].logical_start, ElementsAre(0, 0, 7));
  EXPECT_THAT(boxes[2].logical_start, ElementsAre(6, 0, 2));
  EXPECT_THAT(boxes[3].extent, ElementsAre(2, 3, 3));
}

TEST(Placement, AScalarHasOneBoxAndAnEmptyTensorNone) {
  const std::vector<Rectangle> scalar = rectangles(whole(Shape{}));
  ASSERT_EQ(scalar.size(), 1u);
  EXPECT_THAT(scalar[0].extent, IsEmpty());
  EXPECT_THAT(rectangles(whole(Shape{3, 0})), IsEmpty());
}

TEST(Placement, TextIsTheOneOfTheFormat) {
  EXPECT_EQ(to_string(whole(Shape{})), "-");
  EXPECT_EQ(to_string(whole(Shape{4, 0, 257})), "4 0 257");
  Placement placement = whole(Shape{64, 4, 192});
  placement.dims[0].logical_size = 128;
  placement.dims[0].segments = {{0, 64, 64}};
  placement.dims[2].logical_size = 257;
  placement.partial_index = 1;
  placement.partial_count = 2;
  placement.partial_over = "tp";
  placement.scale = 0.5;
  EXPECT_EQ(to_string(placement), "128/64:0+64+64 4 257/192:0+0+192 partial=1/2:tp scale=0x1p-1");
}

TEST(Placement, TextRoundTrips) {
  const std::vector<std::string> texts = {
      "-",
      "- partial=3/4:tp,dp",
      "0",
      "1 0 7",
      "128/64:0+64+64 4 257/192:0+0+192 partial=1/2:tp scale=0x1p-1",
      "257/192:",
      "8/4:0+0+2,2+6+2",
      "6/3:0+5+1,1+3+1,2+1+1",
      "4 scale=-0x1.8p+3",
      "4 scale=0x0p+0",
      "9 partial=0/1:dp",
      "4 5 flat=7+2",
      "- flat=0+1",
      "8/4:0+4+4 5 partial=1/2:cp scale=0x1p-1 flat=20+0",
      "64/3?:0+9+1,1+4+2 8",
      "64/0?:",
      "4/4?:0+0+4",
  };
  for (const std::string& text : texts) {
    EXPECT_EQ(to_string(parse_placement(text)), text);
  }
}

TEST(Placement, EveryScaleRoundTripsExactly) {
  for (const double scale : {1.0 / 3.0,
                             -0.1,
                             std::numeric_limits<double>::denorm_min(),
                             std::numeric_limits<double>::max()}) {
    Placement placement = whole(Shape{2});
    placement.scale = scale;
    EXPECT_EQ(parse_placement(to_string(placement)), placement) << to_string(placement);
  }
}

TEST(Placement, RefusesTextThatIsNoPlacementAndQuotesIt) {
  const std::vector<std::string> wrong = {
      "",
      "x",
      "4 ",
      " 4",
      "4  4",
      "4 -",
      "- 4",
      "-4",
      "04",
      "4/",
      "4/2",
      "4/2:0",
      "4/2:0+0",
      "4/2:0+0+2+1",
      "4/2:0+0+2,",
      "4/2:,",
      "4/2:+0+2",
      "partial=0/1:tp",
      "4 partial=0",
      "4 partial=0:tp/2",
      "4 partial=a/2:tp",
      "4 scale=",
      "4 scale=0.5",
      "4 scale=0x",
      "4 scale=0x1p-1x",
      "4 scale=0xinf",
      "4 scale=0x1p-1 4",
      "4 color=red",
      "4 flat=",
      "4 flat=1",
      "4 flat=1+2+3",
      "4 flat=-1+2",
      "4 flat=0+2 4",
      "flat=0+1",
      "4?",
      "4/?:",
      "4/2??:0+0+2",
      "99999999999999999999",
      "4 partial=0/99999999999:tp",
  };
  for (const std::string& text : wrong) {
    try {
      (void)parse_placement(text);
      ADD_FAILURE() << "accepted \"" << text << "\"";
    } catch (const FormatError& error) {
      EXPECT_THAT(error.message(), HasSubstr("\"" + text + "\""));
    }
  }
}

TEST(Placement, ClaimsThatCannotBeTrueAreRefused) {
  const std::vector<std::pair<std::string, std::string>> wrong = {
      {"4/4:0+0+2,1+2+2", "overlap at index 1"},
      {"4/4:0+0+2,2+1+2", "overlap at index 1"},
      {"4/4:2+0+2,0+2+2", "overlap"},  // not sorted by local start
      {"4/2:0+0+3", "beyond its size 2"},
      {"4/2:0+3+2", "beyond its size 4"},
      {"4/2:0+0+0", "empty segment"},
      {"4/4:9223372036854775807+0+2", "beyond"},
      {"4 partial=2/2:tp", "partial index 2"},
      {"4 5 flat=18+3",
       "flat range of 3 elements from element 18 lies outside its local tensor of 20"},
      {"8/4:0+0+4 flat=0+5", "flat range of 5 elements"},  // of the local tensor, not the logical
      {"4 flat=5+0", "flat range of 0 elements from element 5"},
      {"4 flat=9223372036854775807+9223372036854775807", "lies outside its local tensor of 4"},
      {"4294967296 4294967296 flat=0+1", "more elements than 63 bits"},
      {"4/2?:0+0+2 4/2?:0+0+2", "2 sparse dimensions"},
      {"4/2?:0+0+2 flat=0+1", "1 sparse dimensions and a flat range"},
      {"4 partial=0/0:tp", "partial index 0"},
  };
  for (const auto& [text, complaint] : wrong) {
    try {
      (void)parse_placement(text);
      ADD_FAILURE() << "accepted \"" << text << "\"";
    } catch (const FormatError& error) {
      EXPECT_THAT(error.message(), HasSubstr(complaint)) << text;
      EXPECT_THAT(error.message(), HasSubstr("\"" + text + "\""));
    }
  }
  Placement placement = whole(Shape{2});
  placement.scale = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THROW(validate(placement), FormatError);
}

TEST(Placement, PermutedSamplesLieWhereTheirOrderSays) {
  const Placement placement = permute(whole(Shape{2, 4}), 1, Shape{2, 3, 0, 1});
  EXPECT_EQ(to_string(placement), "2 4/4:0+2+2,2+0+2");
  EXPECT_EQ(permute(whole(Shape{3}), 0, Shape{0, 1, 2}), whole(Shape{3}));
}

TEST(Placement, PermutingACutDimensionMovesItsLogicalIndices) {
  const Placement cut = parse_placement("8/4:0+4+4 2");
  EXPECT_EQ(to_string(permute(cut, 0, Shape{3, 0, 1, 2})), "8/4:0+7+1,1+4+3 2");
}

TEST(Placement, PermutingMovesPaddingAlong) {
  const Placement padded = parse_placement("3/4:0+0+3");
  EXPECT_EQ(to_string(permute(padded, 0, Shape{3, 2, 1, 0})), "3/4:1+2+1,2+1+1,3+0+1");
}

TEST(Placement, PermutingTwiceComposes) {
  const Placement once = permute(whole(Shape{4}), 0, Shape{1, 2, 3, 0});
  EXPECT_EQ(permute(once, 0, Shape{3, 0, 1, 2}), whole(Shape{4}));
}

TEST(Placement, FlatRangeIsALineOfItsParameter) {
  const Placement placement = parse_placement("8/4:0+4+4 5 flat=7+6");
  EXPECT_FALSE(placement.is_whole());
  EXPECT_FALSE(parse_placement("4 flat=0+4").is_whole());
  EXPECT_THAT(placement.local_shape(), ElementsAre(6));
  EXPECT_THAT(placement.logical_shape(), ElementsAre(8, 5));
  EXPECT_THROW((void)permute(placement, 0, Shape{0, 1, 2, 3}), UsageError);
}

TEST(Placement, FlatRangeIsTheRestOfARowWholeRowsAndTheBeginningOfOne) {
  const std::vector<Rectangle> boxes = rectangles(parse_placement("4 3 5 flat=7+40"));
  // [0, 1, 2:5], [0, 2, :], [1:3, :, :], [3, 0, 0:2]
  ASSERT_EQ(boxes.size(), 4u);
  EXPECT_THAT(boxes[0].logical_start, ElementsAre(0, 1, 2));
  EXPECT_THAT(boxes[0].extent, ElementsAre(1, 1, 3));
  EXPECT_THAT(boxes[1].logical_start, ElementsAre(0, 2, 0));
  EXPECT_THAT(boxes[1].extent, ElementsAre(1, 1, 5));
  EXPECT_THAT(boxes[2].logical_start, ElementsAre(1, 0, 0));
  EXPECT_THAT(boxes[2].extent, ElementsAre(2, 3, 5));
  EXPECT_THAT(boxes[3].logical_start, ElementsAre(3, 0, 0));
  EXPECT_THAT(boxes[3].extent, ElementsAre(1, 1, 2));
}

TEST(Placement, FlatRangeOfAnyKindIsAtMostTwiceTheDimensionsLessOneBoxes) {
  constexpr std::int64_t kElements = 3 * 4 * 2 * 3;
  for (std::int64_t first = 0; first <= kElements; ++first) {
    for (std::int64_t count = 0; first + count <= kElements; ++count) {
      Placement placement = whole(Shape{3, 4, 2, 3});
      placement.flat = FlatRange{first, count};
      const std::vector<Rectangle> boxes = rectangles(placement);
      EXPECT_LE(boxes.size(), 7u);
      std::int64_t elements = 0;
      for (const Rectangle& box : boxes) {
        elements += box.extent[0] * box.extent[1] * box.extent[2] * box.extent[3];
      }
      EXPECT_EQ(elements, count);
    }
  }
}

TEST(Placement, FlatRangeOfPaddingAloneHasNoBox) {
  EXPECT_THAT(rectangles(parse_placement("3/4:0+0+3 2 flat=6+2")), IsEmpty());
  EXPECT_THAT(rectangles(parse_placement("3 2 flat=6+0")), IsEmpty());
}

TEST(Placement, IndexMapPutsEveryRowWhereItSays) {
  DimPlacement rows = index_map(Shape{5, 6, 2, kPadding, 0}, 9);
  Placement placement;
  placement.dims = {rows};
  EXPECT_EQ(to_string(placement), "9/5:0+5+2,2+2+1,4+0+1");
  EXPECT_EQ(index_map(Shape{}, 4), (DimPlacement{0, 4, {}}));
}

TEST(Placement, RefusesRowsThatAreHeldTwiceOrBeyondTheirNumber) {
  EXPECT_THROW((void)index_map(Shape{3, 1, 3}, 4), UsageError);
  EXPECT_THROW((void)index_map(Shape{4}, 4), UsageError);
  EXPECT_THROW((void)index_map(Shape{-2}, 4), UsageError);
}

TEST(Placement, RefusesAnOrderThatIsNoPermutation) {
  const Placement placement = whole(Shape{3});
  EXPECT_THROW((void)permute(placement, 0, Shape{0, 1}), UsageError);
  EXPECT_THROW((void)permute(placement, 0, Shape{0, 1, 1}), UsageError);
  EXPECT_THROW((void)permute(placement, 0, Shape{0, 1, 3}), UsageError);
  EXPECT_THROW((void)permute(placement, 0, Shape{0, 1, -1}), UsageError);
  EXPECT_THROW((void)permute(placement, 1, Shape{0, 1, 2}), UsageError);
}

}  // namespace
}  // namespace ttrace
