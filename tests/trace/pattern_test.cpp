#include "trace/base/pattern.h"

#include <ttrace/error.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ttrace {
namespace {

using ::testing::StartsWith;

TEST(Pattern, IsFoundAnywhereButMatchesTheWholeNameOnly) {
  const Pattern pattern("--filter", R"(layers\.\d+)");
  EXPECT_TRUE(pattern.found_in("s0/m0/output/layers.11.mlp/0"));
  EXPECT_FALSE(pattern.matches("s0/m0/output/layers.11.mlp/0"));
  EXPECT_TRUE(pattern.matches("layers.11"));
  EXPECT_FALSE(pattern.found_in("layers.x"));
}

TEST(Pattern, TheEmptyOneIsFoundInEveryName) {
  EXPECT_TRUE(Pattern("--filter", "").found_in("loss"));
}

TEST(Pattern, IsRefusedWithTheOptionAndTheTextIfItCannotBeCompiled) {
  try {
    const Pattern pattern("TTRACE_FILTER", "(");
    FAIL() << "an unmatched parenthesis was accepted";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.message(),
                StartsWith("TTRACE_FILTER is '('; it must be a regular expression ("));
  }
}

}  // namespace
}  // namespace ttrace
