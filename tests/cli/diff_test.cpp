#include "cli_fixture.h"

#include <filesystem>

namespace ttrace::testing {
namespace {

using ::testing::AllOf;
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
  const ProcessResult result = ttrace({"diff", "run", "--details"});
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

TEST_F(Diff, ToleranceDecidesInsteadOfTheBound) {
  store_run("--differ");  // one output 10 % too large
  EXPECT_EQ(ttrace({"diff", "run", "--rtol", "0.2"}).exit_code, 0);
  EXPECT_EQ(ttrace({"diff", "run", "--rtol", ".*linear_fc2.*:0.2"}).exit_code, 0);
  const ProcessResult tight =
      ttrace({"diff", "run", "--rtol", "0.2", "--rtol", ".*linear_fc2.*:0.05", "--atol=0"});
  EXPECT_EQ(tight.exit_code, 1);
  EXPECT_THAT(tight.out, HasSubstr("510 of 512 elements exceed the tolerance asked for"));
}

TEST_F(Diff, AllowedFailureIsListedAndWarnsWhenItVanishes) {
  store_run("--differ");
  const ProcessResult result = ttrace({"diff", "run", "--allow-failed", "linear_fc2"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, HasSubstr("  allowed    1 tensor out of bound\n"));
  EXPECT_EQ(result.err, "");
  const ProcessResult stale =
      ttrace({"diff", "run", "--allow-failed", "linear_fc2", "--allow-missing", "fc9"});
  EXPECT_EQ(stale.exit_code, 0);
  EXPECT_THAT(stale.err, HasSubstr("--allow-missing 'fc9' matches no missing tensor"));
}

TEST_F(Diff, SelectionDecidesWhatIsLookedAt) {
  store_run("--ranks 2 --differ");
  const ProcessResult result = ttrace({"diff", "run", "--exclude", "linear_fc2", "--ranks", "1"});
  EXPECT_EQ(result.exit_code, 0) << result.out;
  EXPECT_THAT(result.out, HasSubstr("1 left out by selection"));
}

TEST_F(Diff, ToleranceThatIsNoneIsExplained) {
  store_run("");
  const ProcessResult result = ttrace({"diff", "run", "--atol", "fc:tight"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(result.err,
            "ttrace: error: --atol is 'fc:tight'; it must be a number of at least 0, or "
            "REGEX:NUMBER for the tensors whose whole id matches REGEX\n");
}

TEST_F(Diff, JudgesAsIfARowOfTheLedgerDidNotExist) {
  const auto arguments = check(trainer(), trainer("--off 1.8"), {"--no-forced"});
  ASSERT_EQ(ttrace(arguments).exit_code, 0);
  const ProcessResult two =
      ttrace({"diff", "run", "--without", "update-flips", "--without", "order-of-sums"});
  EXPECT_EQ(two.exit_code, 0);
  EXPECT_THAT(two.out, HasSubstr("  remark     judged as if the ledger of limits had no row "));
  EXPECT_THAT(two.out, AllOf(HasSubstr("`update-flips`"), HasSubstr("`order-of-sums`")));
}

TEST_F(Diff, ARowThatIsNotInTheLedgerIsExplained) {
  store_run("");
  const ProcessResult result = ttrace({"diff", "run", "--without", "update-flip"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err,
              StartsWith("ttrace: error: --without names 'update-flip', which is no row of the "
                         "ledger of limits; the nearest are 'update-flips', "));
}

TEST_F(Diff, NoFolderIsBadUsage) {
  const ProcessResult result = ttrace({"diff"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("diff needs a reference and a candidate"));
}

}  // namespace
}  // namespace ttrace::testing
