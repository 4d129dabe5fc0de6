#include "cli_fixture.h"

#include <filesystem>

namespace ttrace::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class Diff : public CliTest {
 protected:
  void store_run(const std::string& candidate_switches) {
    ASSERT_NE(ttrace(check(trainer(), trainer(candidate_switches))).exit_code, 2);
  }
};

TEST_F(Diff, TextIsThatOfTheCheck) {
  store_run("--ranks 4");
  const ProcessResult result = ttrace({"diff", "run"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.out, file("run/report.txt"));
}

TEST_F(Diff, ThreadsDoNotChangeAByte) {
  store_run("--ranks 2 --differ");
  for (const std::string format : {"text", "json"}) {
    const ProcessResult one = ttrace({"diff", "run", "--format", format, "--threads", "1"});
    const ProcessResult two = ttrace({"diff", "run", "--format", format, "--threads", "2"});
    EXPECT_EQ(one.exit_code, 1);
    EXPECT_THAT(one.out, Not(::testing::IsEmpty()));
    EXPECT_EQ(one.out, two.out);
  }
}

TEST_F(Diff, MissingRankFileCannotBeCompared) {
  store_run("--ranks 2");
  std::filesystem::remove(folder_ / "run/candidate/step000000/rank00001.h5");
  const ProcessResult result = ttrace({"diff", "run"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("run/candidate/step000000/rank00001.h5"));
}

TEST_F(Diff, MissingFolderIsNamed) {
  const ProcessResult result = ttrace({"diff", "here", "there"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(result.err, "ttrace: error: there is no folder here\n");
}

TEST_F(Diff, FolderWithoutTracesIsExplained) {
  const ProcessResult result = ttrace({"diff", folder_.path()});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("has no reference/ and candidate/ inside"));
}

TEST_F(Diff, NoFolderIsBadUsage) {
  const ProcessResult result = ttrace({"diff"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("diff takes a reference and a candidate"));
}

}  // namespace
}  // namespace ttrace::testing
