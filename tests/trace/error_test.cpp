#include <ttrace/error.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace ttrace {
namespace {

using ::testing::EndsWith;
using ::testing::StartsWith;

TEST(Error, WhatEndsWithThePlaceInTheSources) {
  const int line = __LINE__ + 2;
  try {
    TTRACE_THROW(UsageError, "axis 'tp' has size ", 0, "; give 1 or more");
  } catch (const UsageError& error) {
    EXPECT_EQ(error.what(),
              "axis 'tp' has size 0; give 1 or more [tests/trace/error_test.cpp:" +
                  std::to_string(line) + "]");
    return;
  }
  FAIL() << "TTRACE_THROW threw nothing";
}

TEST(Error, MessageHasNoPlace) {
  const FormatError error("x.h5: is truncated", "elsewhere/a.cpp", 7);
  EXPECT_EQ(error.message(), "x.h5: is truncated");
}

TEST(Error, FileOutsideTheSourcesKeepsItsPath) {
  const InternalError error("broken", "/opt/other/a.cpp", 7);
  EXPECT_STREQ(error.what(), "broken [/opt/other/a.cpp:7]");
}

TEST(Error, KindsAreDistinguishedAndShareTheirBase) {
  EXPECT_THROW(TTRACE_THROW(FormatError, "f"), FormatError);
  EXPECT_THROW(TTRACE_THROW(InternalError, "i"), Error);
  try {
    TTRACE_THROW(InternalError, "i");
  } catch (const UsageError&) {
    FAIL() << "an InternalError is no UsageError";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), StartsWith("i ["));
    EXPECT_THAT(error.what(), EndsWith("]"));
  }
}

TEST(Error, CheckThrowsOnlyWhereTheConditionFails) {
  int evaluated = 0;
  const auto count = [&] { return ++evaluated; };
  TTRACE_CHECK(true, UsageError, "not built: ", count());
  EXPECT_EQ(evaluated, 0) << "the message of a passed check costs nothing";
  EXPECT_THROW(TTRACE_CHECK(1 > 2, UsageError, "1 > 2"), UsageError);
}

}  // namespace
}  // namespace ttrace
