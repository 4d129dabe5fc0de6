// What the program says, kept in one file beside this one, wording.txt, so that prose is read and
// improved in one place. Tests assert ids and numbers, and hold their sentences with
// EXPECT_WORDING.
//
// Thread-safety: for one test at a time.
#pragma once

#include <gtest/gtest.h>

#include <string>

namespace ttrace::testing {

// Whether `text` is what wording.txt has for this call of this test. Numbers with an exponent, and
// nothing at all that an error falls to, are round-off and may differ. With TTRACE_WRITE_WORDING=1
// the file gets the text.
[[nodiscard]] ::testing::AssertionResult is_worded(const std::string& text);

#define EXPECT_WORDING(text) EXPECT_TRUE(::ttrace::testing::is_worded(text))

}  // namespace ttrace::testing
