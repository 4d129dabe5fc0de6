#include "cli_fixture.h"

#include <chrono>
#include <csignal>
#include <filesystem>
#include <thread>

namespace ttrace::testing {
namespace {

using ::testing::HasSubstr;

// After each of these tests, the fixture checks that nothing is left running.
class ProcessLife : public CliTest {
 protected:
  // Seconds, for --timeout: twice what a whole check takes on this machine now.
  [[nodiscard]] std::string longer_than_a_pass() const {
    const ProcessResult whole = ttrace(check(trainer(), trainer(), {"--no-forced"}));
    EXPECT_EQ(whole.exit_code, 0) << whole.err;
    std::filesystem::remove_all(folder_ / "run");
    return std::to_string(2 * whole.seconds);
  }
};

TEST_F(ProcessLife, HangingProgramIsEndedAfterTheTimeout) {
  const ProcessResult result =
      ttrace(check(trainer(), trainer("--hang"), {"--timeout", longer_than_a_pass()}));
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("the dry candidate pass failed: it took longer than "));
  EXPECT_THAT(result.err, HasSubstr("run/logs/dry.log"));
}

TEST_F(ProcessLife, ProgramThatTrainsOnIsEndedOnceItsTraceIsComplete) {
  const ProcessResult result = ttrace(check(trainer("--linger"), trainer("--linger")));
  EXPECT_EQ(result.exit_code, 0) << result.err;
}

TEST_F(ProcessLife, DaemonOfAnotherSessionIsEnded) {
  const ProcessResult result = ttrace(check(trainer(), trainer("--linger-daemon")));
  EXPECT_EQ(result.exit_code, 0) << result.err;
}

TEST_F(ProcessLife, ProgramDeafToSigtermIsKilledAfterTheGraceTime) {
  const ProcessResult result =
      ttrace(check(trainer(), trainer("--linger --ignore-sigterm"), {"--grace", "0.2"}));
  EXPECT_EQ(result.exit_code, 0) << result.err;
}

TEST_F(ProcessLife, DaemonDeafToSigtermIsKilledAfterATimeout) {
  const ProcessResult result =
      ttrace(check(trainer(),
                   "setsid " + trainer("--hang --ignore-sigterm") + " & wait",
                   {"--timeout", longer_than_a_pass(), "--grace", "0.2"}));
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("it took longer than "));
}

// Symptom: "basic_filebuf::underflow error reading the file: No such process", exit code 2, now and
// then on a busy machine: a process ended between opening and reading its file below /proc.
TEST_F(ProcessLife, ProcessesThatComeAndGoBesideACheckDoNotDisturbIt) {
  constexpr const char* kStorm = "while :; do /bin/true & /bin/true & /bin/true; done";
  ProcessOptions options;
  options.arguments = {"/bin/sh", "-c", kStorm};
  const RunningProcess storm(options);
  for (int run = 0; run < 3; ++run) {
    const ProcessResult result = ttrace({"check",
                                         "--reference",
                                         trainer(),
                                         "--candidate",
                                         trainer(),
                                         "--noise",
                                         "6",
                                         "-o",
                                         "run" + std::to_string(run)});
    ASSERT_EQ(result.exit_code, 0) << result.err;
  }
}

class Interrupt : public ProcessLife, public ::testing::WithParamInterface<int> {};

TEST_P(Interrupt, EndsEverythingAndKeepsTheReference) {
  RunningProcess running(
      options(check(trainer(), "setsid " + trainer("--only candidate --hang") + " & wait")));
  ASSERT_TRUE(appears("run/candidate/manifest.json"));
  kill(running.pid(), GetParam());
  const ProcessResult result = running.wait();
  EXPECT_EQ(result.exit_code, 128 + GetParam());
  EXPECT_THAT(result.err, HasSubstr("interrupted; all programs that it started have been ended"));
  EXPECT_TRUE(std::filesystem::exists(folder_ / "run/reference/step000000/rank00000.h5"));
}

INSTANTIATE_TEST_SUITE_P(Signals,
                         Interrupt,
                         ::testing::Values(SIGINT, SIGTERM, SIGHUP),
                         [](const auto& parameter) {
                           return std::string(sigabbrev_np(parameter.param));
                         });

TEST_F(ProcessLife, SecondInterruptDoesNotWaitForTheGraceTime) {
  RunningProcess running(options(
      check(trainer(), trainer("--only candidate --hang --ignore-sigterm"), {"--grace", "60"})));
  ASSERT_TRUE(appears("run/candidate/manifest.json"));
  kill(running.pid(), SIGINT);
  kill(running.pid(), SIGTERM);  // of another kind: two equal ones may arrive as one
  const ProcessResult result = running.wait();
  EXPECT_EQ(result.exit_code, 128 + SIGINT);
  EXPECT_LT(result.seconds, 10.0);
}

}  // namespace
}  // namespace ttrace::testing
