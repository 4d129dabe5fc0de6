// A check judges what its own passes wrote, whoever else writes at the same time.
#include "cli_fixture.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace ttrace::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

using SharedFolder = CliTest;

// Of two checks with one -o, both ran in one time of forty: the wrong candidate was judged by the
// files of the right one, and got WITHIN BOUND.
TEST_F(SharedFolder, OneOfTwoChecksAtTheSameMomentGetsIt) {
  for (int trial = 0; trial < 25; ++trial) {
    const std::string folder = "run" + std::to_string(trial);
    const auto start = [&](const std::string& switches) {
      std::vector<std::string> arguments = check(trainer(), trainer(switches), {"--no-forced"});
      std::replace(arguments.begin(), arguments.end(), std::string("run"), folder);
      return std::make_unique<RunningProcess>(options(std::move(arguments)));
    };
    const auto right = start("");
    const auto wrong = start("--differ");
    const ProcessResult of_right = right->wait();
    const ProcessResult of_wrong = wrong->wait();
    const bool right_ran = of_right.exit_code == 0;
    EXPECT_EQ(of_right.exit_code, right_ran ? 0 : 2) << of_right.err;
    EXPECT_EQ(of_wrong.exit_code, right_ran ? 2 : 1) << of_wrong.out << of_wrong.err;
    EXPECT_THAT((right_ran ? of_wrong : of_right).err, HasSubstr(folder + " is not empty"));
  }
}

// A pass of another program, perhaps left over from an earlier check, wrote into the folder.
TEST_F(SharedFolder, TraceOfAnotherPassIsRefused) {
  const ProcessResult result = ttrace(check(trainer(), "TTRACE_RUN=0123456789abcdef " + trainer()));
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(
      result.err,
      AllOf(HasSubstr("the candidate pass failed"),
            HasSubstr("another pass than the one that this check started wrote run/candidate"),
            HasSubstr("choose another folder with -o")));
}

TEST_F(SharedFolder, NoiseOfAnotherPassIsRefused) {
  const std::string other =
      R"(if [ "$TTRACE_PASS" = noise ]; then export TTRACE_RUN=0; fi; )" + trainer();
  const ProcessResult result = ttrace(check(other, trainer()));
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("the noise 1 of 1 pass failed: another pass than the one"));
}

TEST_F(SharedFolder, LauncherThatDropsTheTokenIsNoOtherPass) {
  EXPECT_EQ(ttrace(check(trainer(), "unset TTRACE_RUN; " + trainer())).exit_code, 0);
}

TEST_F(SharedFolder, EveryPassHasATokenOfItsOwn) {
  const std::string tells = "echo token $TTRACE_RUN; " + trainer();
  ASSERT_EQ(ttrace(check(tells, tells)).exit_code, 0);
  std::vector<std::string> tokens;
  for (const char* pass : {"reference", "noise-1", "candidate"}) {
    const std::string log = file("run/logs/" + std::string(pass) + ".log");
    const std::size_t place = log.find("token ");
    ASSERT_NE(place, std::string::npos) << log;
    tokens.push_back(log.substr(place, log.find('\n', place) - place));
    EXPECT_GT(tokens.back().size(), 20U);
  }
  std::sort(tokens.begin(), tokens.end());
  EXPECT_EQ(std::unique(tokens.begin(), tokens.end()), tokens.end());
  EXPECT_THAT(file("run/reference/manifest.json"), HasSubstr("\"run\": \""));
}

}  // namespace
}  // namespace ttrace::testing
