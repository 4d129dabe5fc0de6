#include "trace/file/attendance.h"

#include "support/temporary_directory.h"

#include <ttrace/error.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <optional>

namespace ttrace {
namespace {

using ::testing::HasSubstr;

TEST(Attendance, ComesBackAsItWasWritten) {
  const testing::TemporaryDirectory folder;
  EXPECT_EQ(read_attendance(folder.path()), std::nullopt);
  write_attendance(folder.path(), 1, {.awaited = 5, .first = 0, .last = 2});
  write_attendance(folder.path(), 0, {.awaited = 5, .first = {}, .last = {}});
  const Attendance lowest{.awaited = 5, .first = {}, .last = {}};
  EXPECT_EQ(read_attendance(folder.path()), lowest);
  std::filesystem::remove(attendance_file(folder.path(), 0));
  const Attendance other{.awaited = 5, .first = 0, .last = 2};
  EXPECT_EQ(read_attendance(folder.path()), other);
}

TEST(Attendance, AForeignFileIsNamed) {
  const testing::TemporaryDirectory folder;
  write_attendance(folder.path(), 0, {});
  std::ofstream(attendance_file(folder.path(), 0)) << "{}";
  try {
    static_cast<void>(read_attendance(folder.path()));
    FAIL() << "no error";
  } catch (const FormatError& error) {
    EXPECT_THAT(error.message(), HasSubstr(attendance_file(folder.path(), 0)));
  }
}

// Symptom: two processes that both took themselves for rank 0 wrote one file, and the report
// compared one of them alone.
TEST(Attendance, ARankIsClaimedOnceAtATime) {
  const testing::TemporaryDirectory folder;
  EXPECT_FALSE(has_claims(folder.path()));
  {
    const FileDescriptor first = claim_rank(folder.path(), 0, 1);
    EXPECT_TRUE(has_claims(folder.path()));
    const FileDescriptor neighbour = claim_rank(folder.path(), 1, 2);
    try {
      static_cast<void>(claim_rank(folder.path(), 0, 1));
      FAIL() << "no error";
    } catch (const UsageError& error) {
      EXPECT_THAT(error.message(),
                  HasSubstr("another process has already attached as rank 0 of 1"));
    }
    write_attendance(folder.path(), 0, {.awaited = 1, .first = 0, .last = 0});
  }
  // One that has ended, as a restarted rank's has, stands in nobody's way.
  static_cast<void>(claim_rank(folder.path(), 0, 1));
}

}  // namespace
}  // namespace ttrace
