#include "trace/file/capture_counts.h"

#include "support/temporary_directory.h"

#include <ttrace/error.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

namespace ttrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::TemporaryDirectory;

CaptureCounts some_counts(int rank) {
  CaptureCounts counts;
  counts.rank = rank;
  counts.world_size = 2;
  counts.steps[0][Kind::kOutput] = {3, 1200};
  counts.steps[2][Kind::kMainGrad] = {1, 8};
  counts.start = {5, 1ULL << 40};
  return counts;
}

TEST(CaptureCountsTest, RoundTripsForEveryRank) {
  const TemporaryDirectory directory;
  write_counts(directory.path(), some_counts(0));
  EXPECT_FALSE(counts_are_complete(directory.path())) << "rank 1 is not done";
  write_counts(directory.path(), some_counts(1));
  EXPECT_TRUE(counts_are_complete(directory.path()));
  EXPECT_THAT(read_counts(directory.path()), ElementsAre(some_counts(0), some_counts(1)));
}

TEST(CaptureCountsTest, TotalIsOfAllStepsAndKinds) {
  EXPECT_EQ(total(some_counts(0)), (TensorCount{4, 1208}));
}

TEST(CaptureCountsTest, NothingThereIsNotComplete) {
  const TemporaryDirectory directory;
  EXPECT_FALSE(counts_are_complete(directory.path()));
  EXPECT_THROW(static_cast<void>(read_counts(directory.path())), FormatError);
}

TEST(CaptureCountsTest, ForeignFilesAreNamed) {
  for (const char* text : {"",
                           "no json",
                           "[]",
                           R"({"format":"else","version":1})",
                           R"({"format":"ttrace-counts","version":2})",
                           R"({"format":"ttrace-counts","version":1,"rank":0})"}) {
    const TemporaryDirectory directory;
    write_counts(directory.path(), some_counts(0));
    std::ofstream(counts_file(directory.path(), 0)) << text;
    try {
      static_cast<void>(read_counts(directory.path()));
      FAIL() << "must throw: " << text;
    } catch (const FormatError& error) {
      EXPECT_THAT(error.message(),
                  HasSubstr("rank00000.json: this file does not count a capture: "))
          << text;
    }
  }
}

}  // namespace
}  // namespace ttrace
