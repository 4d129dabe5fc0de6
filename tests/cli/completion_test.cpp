// Completion of the command line, in the shells themselves.
#include "cli_fixture.h"

#include <string>

namespace ttrace::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class Completion : public CliTest {
 protected:
  ProcessResult shell(const std::string& name, const std::string& script) {
    return run_process(
        {.arguments = {"/bin/sh",
                       "-c",
                       "command -v " + name + " >/dev/null || exit 77; exec " + name + " -c \"$0\"",
                       script},
         .environment = {},
         .directory = folder_.path()});
  }
  // What bash offers for the last of `words`.
  std::string offered_by_bash(const std::string& words, int count) {
    const std::string before = "${COMP_WORDS[COMP_CWORD-1]}";
    const ProcessResult result = shell("bash",
                                       "source <('" + std::string(TTRACE_PROGRAM) +
                                           "' help --completion bash); COMP_WORDS=(" + words +
                                           "); COMP_CWORD=" + std::to_string(count - 1) +
                                           "; _ttrace ttrace \"${COMP_WORDS[COMP_CWORD]}\" \"" +
                                           before + "\"; echo \"${COMPREPLY[@]}\"");
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_THAT(result.err, IsEmpty());
    return result.out;
  }
};

TEST_F(Completion, BashOffersCommands) {
  EXPECT_EQ(offered_by_bash("ttrace di", 2), "diff\n");
}

TEST_F(Completion, BashOffersTheOptionsOfTheCommandAlone) {
  EXPECT_THAT(offered_by_bash("ttrace diff --", 3),
              AllOf(HasSubstr("--partial"), HasSubstr("--format"), Not(HasSubstr("--candidate "))));
  EXPECT_THAT(offered_by_bash("ttrace check --ca", 3), HasSubstr("--candidate"));
}

TEST_F(Completion, BashOffersTheValuesThatTheTableLists) {
  EXPECT_EQ(offered_by_bash("ttrace diff --format j", 4), "json jsonl junit\n");
  EXPECT_EQ(offered_by_bash("ttrace check --start ''", 4), "reference own\n");
}

// Bash completes the names of files where the function offers nothing.
TEST_F(Completion, BashLeavesOtherValuesToFiles) {
  EXPECT_EQ(offered_by_bash("ttrace check --output ''", 4), "\n");
}

TEST_F(Completion, OtherShellsAcceptTheirScripts) {
  for (const std::string name : {"zsh", "fish"}) {
    const ProcessResult script = ttrace({"help", "--completion", name});
    EXPECT_EQ(script.exit_code, 0);
    EXPECT_THAT(script.out, HasSubstr("ttrace"));
    const ProcessResult read = shell(name,
                                     "'" + std::string(TTRACE_PROGRAM) + "' help --completion " +
                                         name + " > script; " + name + " -n script");
    if (read.exit_code == 77) {
      GTEST_SKIP() << name << " is not installed";
    }
    EXPECT_EQ(read.exit_code, 0) << name << read.err;
  }
}

TEST_F(Completion, AnotherShellIsBadUsage) {
  const ProcessResult result = ttrace({"help", "--completion", "csh"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("--completion is 'csh'; it must be bash, zsh or fish"));
}

}  // namespace
}  // namespace ttrace::testing
