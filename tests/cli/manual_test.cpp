#include "cli_fixture.h"

namespace ttrace::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

using ManualTest = CliTest;

const std::vector<std::string> kCommands{
    "check", "diff", "explain", "calibrate", "infer", "ls", "show", "verify", "merge", "import"};

TEST_F(ManualTest, CommittedManPageIsWhatTheProgramPrints) {
  const ProcessResult result = ttrace({"help", "--man"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.out, read_text(std::string(TTRACE_SOURCE) + "/man/ttrace.1"))
      << "update it: build/cpu/bin/ttrace help --man > man/ttrace.1";
}

TEST_F(ManualTest, PageHasEveryCommandWithOptionsAndExitCodes) {
  const std::string page = ttrace({"help", "--man"}).out;
  for (const std::string& command : kCommands) {
    EXPECT_THAT(page, HasSubstr(".SS ttrace " + command + "\n"));
  }
  EXPECT_THAT(page,
              AllOf(HasSubstr("\\fB\\-o\\fR, \\fB\\-\\-output\\fR \\fIFOLDER\\fR\n"),
                    HasSubstr("\\fB\\-\\-partial\\fR\n"),
                    HasSubstr(".TP\n\\fB128+n\\fR\n")));
}

TEST_F(ManualTest, GroffFindsNothingToComplainOf) {
  const ProcessResult groff = run_process(
      {.arguments = {"/bin/sh",
                     "-c",
                     "command -v groff >/dev/null || exit 77; '" + std::string(TTRACE_PROGRAM) +
                         "' help --man | groff -man -Tascii -ww -P-cbou"},
       .environment = {},
       .directory = folder_.path()});
  if (groff.exit_code == 77) {
    GTEST_SKIP() << "groff is not installed";
  }
  EXPECT_EQ(groff.exit_code, 0);
  EXPECT_THAT(groff.err, IsEmpty());
  EXPECT_THAT(groff.out,
              AllOf(HasSubstr("ttrace diff REFERENCE CANDIDATE [options]"),
                    HasSubstr("--rtol X|REGEX:X"),
                    HasSubstr("`.tmp`"),
                    Not(HasSubstr("\\fB"))));
}

TEST_F(ManualTest, EveryHelpListsItsExitCodes) {
  for (const std::string& command : kCommands) {
    EXPECT_THAT(ttrace({command, "--help"}).out, HasSubstr("\nExit codes:\n  0       ")) << command;
  }
}

TEST_F(ManualTest, UnknownTopicNamesTheNearest) {
  const ProcessResult result = ttrace({"help", "meerge"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("unknown command 'meerge'; the nearest is 'merge'"));
  EXPECT_EQ(ttrace({"help", "ls", "show"}).exit_code, 2);
}

}  // namespace
}  // namespace ttrace::testing
