#include "cli_fixture.h"

#include <filesystem>

namespace ttrace::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

using FailedPass = CliTest;

TEST_F(FailedPass, EarlyExitTellsPassStatusLogAndWhatCanBeReused) {
  const ProcessResult result = ttrace(check(trainer(), trainer("--exit-before 3")));
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.out, IsEmpty());
  EXPECT_THAT(result.err,
              AllOf(StartsWith("ttrace: error: the candidate pass failed: the program exited with "
                               "status 3 before the trace was complete\n"),
                    HasSubstr("run/logs/candidate.log ends with:"),
                    HasSubstr("    out of luck\n"),
                    HasSubstr("pass --reference run/reference to reuse it"),
                    Not(HasSubstr("never attached"))));
  EXPECT_TRUE(std::filesystem::exists(folder_ / "run/reference/step000000/rank00000.h5"));
}

TEST_F(FailedPass, StatusAfterCompletionDoesNotMatter) {
  EXPECT_EQ(ttrace(check(trainer("--exit-after 1"), trainer("--exit-after 9"))).exit_code, 0);
}

TEST_F(FailedPass, FailedReferenceOffersNothingToReuse) {
  const ProcessResult result = ttrace(check(trainer("--exit-before 1"), trainer()));
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, AllOf(HasSubstr("the reference pass failed"), Not(HasSubstr("reuse"))));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "run/candidate"));
}

TEST_F(FailedPass, FailedNoisePassIsNumbered) {
  const ProcessResult result = ttrace(check(trainer("--only noise --exit-before 1"), trainer()));
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("the noise 1 of 1 pass failed"), HasSubstr("run/logs/noise-1.log")));
}

TEST_F(FailedPass, SignalIsNamed) {
  const ProcessResult result = ttrace(check(trainer(), "exec " + trainer("--crash")));
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("was ended by signal 11 (Segmentation fault)"));
}

TEST_F(FailedPass, SignalReportedByALauncherIsNamed) {
  const ProcessResult result = ttrace(check(trainer(), trainer("--crash") + "; exit $?"));
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("exited with status 139"));
  EXPECT_THAT(result.err, HasSubstr("reports signal 11 (Segmentation fault)"));
}

TEST_F(FailedPass, UnknownProgramIsExplained) {
  const ProcessResult result = ttrace(check("no-such-program", trainer()));
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("exited with status 127 (command not found)"));
}

TEST_F(FailedPass, ProgramThatNeverAttachedIsAskedForItsVariables) {
  const ProcessResult result = ttrace(check(trainer(), trainer("--never-attach")));
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("the program never attached a ttrace session"));
}

TEST_F(FailedPass, FailureOfARankEndsTheRunAtOnceAndIsQuoted) {
  const ProcessResult result = ttrace(check(trainer(), trainer("--fail-step")));
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(
      result.err,
      HasSubstr("run/candidate/step000000/rank00000.failed says:\n    rank 0: the moon was full"));
  EXPECT_LT(result.seconds, 5.0);
}

TEST_F(FailedPass, OnlyTheEndOfALongLogIsQuoted) {
  const ProcessResult result = ttrace(check("seq 1 100", trainer()));
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("    86\n"), HasSubstr("    100\n"), Not(HasSubstr("    85\n"))));
}

}  // namespace
}  // namespace ttrace::testing
