#include <ttrace/error.h>
#include <ttrace/layout.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ttrace {
namespace {

using ::testing::HasSubstr;

TEST(Layout, DefaultIsOneDevice) {
  const Layout layout;
  EXPECT_EQ(layout.size("tp"), 1);
  EXPECT_EQ(layout.coordinate("tp"), 0);
  EXPECT_EQ(to_string(layout), "one device");
}

TEST(Layout, KnowsItsAxesAndPrintsThoseThatDivide) {
  Layout layout;
  layout.add("tp", 2, 1).add("sp", 2, 1, "tp").add("cp", 1, 0).add("dp", 3, 2);
  EXPECT_EQ(layout.size("tp"), 2);
  EXPECT_EQ(layout.coordinate("tp"), 1);
  EXPECT_EQ(layout.coordinate("dp"), 2);
  EXPECT_EQ(layout.size("pp"), 1);
  EXPECT_EQ(to_string(layout), "tp 2, sp 2, dp 3");
}

TEST(Layout, AllAxesOfSizeOneAreOneDevice) {
  Layout layout;
  layout.add("tp", 1, 0);
  EXPECT_EQ(to_string(layout), "one device");
}

TEST(Layout, RefusesRepeatedAxesAndCoordinatesOutside) {
  Layout layout;
  layout.add("tp", 2, 0);
  EXPECT_THROW(layout.add("tp", 2, 0), UsageError);
  EXPECT_THROW(layout.add("", 2, 0), UsageError);
  EXPECT_THROW(layout.add("cp", 2, 2), UsageError);
  EXPECT_THROW(layout.add("cp", 2, -1), UsageError);
  EXPECT_THROW(layout.add("cp", 0, 0), UsageError);
  EXPECT_EQ(layout.axes.size(), 1u);
}

TEST(Layout, AFollowerMustEqualTheAxisItFollows) {
  Layout layout;
  layout.add("tp", 4, 3);
  try {
    layout.add("sp", 4, 2, "tp");
    FAIL() << "accepted";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.message(), HasSubstr("\"sp\" (coordinate 2 of 4)"));
    EXPECT_THAT(error.message(), HasSubstr("\"tp\" (coordinate 3 of 4)"));
  }
  EXPECT_THROW(layout.add("sp", 2, 1, "tp"), UsageError);
  EXPECT_THROW(layout.add("sp", 4, 3, "mp"), UsageError);
  layout.add("sp", 4, 3, "tp");
  EXPECT_EQ(layout.axes.back().follows, "tp");
}

}  // namespace
}  // namespace ttrace
