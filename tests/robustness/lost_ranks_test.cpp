// A rank of a real traced program gets lost in the middle of a step: everything that was finished
// before stays readable, no half-written file has a final name, and `ttrace check` says what
// happened.
#include "stored_traces.h"
#include "trace/file/trace_reader.h"
#include "trace/file/trace_writer.h"

#include <csignal>
#include <ostream>
#include <thread>

namespace ttrace::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

namespace fs = std::filesystem;

class LostRank : public CliTest {
 protected:
  [[nodiscard]] std::string traced(const std::string& switches = "") const {
    return std::string(TRACED_TRAINER) + " " + switches + " --tag " + folder_.path();
  }

  // Two ranks; the second one gets lost in step 1.
  [[nodiscard]] std::string two_ranks(const std::string& action) const {
    return traced("--world 2 --rank 0") + " & " +
           traced("--world 2 --rank 1 --at 1 --do " + action) + "; rank_1=$?; wait; exit $rank_1";
  }

  [[nodiscard]] ProcessResult run_check(const std::string& candidate,
                                        std::vector<std::string> more = {}) const {
    more.insert(more.end(), {"--steps", "0:2"});
    return ttrace(check(traced(), candidate, more));
  }

  [[nodiscard]] std::string candidate() const { return folder_ / "run/candidate"; }

  // The lost rank's step 0 is complete, and its step 1 is missing.
  void expect_finished_steps_only() const {
    EXPECT_GT(RankFile(step_file(candidate(), 0, 1)).records().size(), 10U);
    EXPECT_FALSE(fs::exists(step_file(candidate(), 1, 1)));
  }

  // A single run of the trainer outside of check, as on a cluster.
  [[nodiscard]] ProcessOptions pass(const std::string& switches) const {
    return {.arguments = {"/bin/sh", "-c", "exec " + traced(switches)},
            .environment = {{"TTRACE_PASS", "candidate"},
                            {"TTRACE_START", "own"},
                            {"TTRACE_STEPS", "0:2"},
                            {"TTRACE_DIR", candidate()}},
            .directory = folder_.path()};
  }
};

TEST_F(LostRank, NoneIsLostWithoutAReason) {
  const ProcessResult result = run_check(two_ranks("''"));
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_GT(RankFile(step_file(candidate(), 1, 1)).records().size(), 10U);
}

struct Loss {
  const char* action;
  const char* said;  // by check
};

void PrintTo(const Loss& loss, std::ostream* out) {
  *out << loss.action;
}

class Lost : public LostRank, public ::testing::WithParamInterface<Loss> {};

TEST_P(Lost, EndsTheCheckWithItsReason) {
  std::vector<std::string> more;
  if (std::string(GetParam().action) == "hang") {
    // Only a hanging program is waited for; its step 0 must be over by then: twice as long as a
    // whole check takes on this machine now.
    const ProcessResult whole = run_check(two_ranks("''"));
    ASSERT_EQ(whole.exit_code, 0) << whole.err;
    fs::remove_all(folder_ / "run");
    more = {"--timeout", std::to_string(2 * whole.seconds)};
  }
  const ProcessResult result = run_check(two_ranks(GetParam().action), more);
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_FALSE(result.timed_out);
  EXPECT_THAT(result.out, ::testing::IsEmpty());
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("ttrace: error: the candidate pass failed: "),
                    HasSubstr(GetParam().said),
                    HasSubstr("run/logs/candidate.log"),
                    HasSubstr("pass --reference run/reference to reuse it")));
  expect_finished_steps_only();
}

INSTANTIATE_TEST_SUITE_P(
    Ways,
    Lost,
    ::testing::Values(Loss{"throw",
                           "the training program threw an exception within the traced step"},
                      Loss{"exit", "the training program called exit() within the traced step"},
                      Loss{"abort", "signal 6"},
                      Loss{"kill", "signal 9"},
                      Loss{"crash", "signal 11"},
                      Loss{"hang", " s (--timeout), so ttrace ended it"}),
    [](const auto& chosen) { return std::string(chosen.param.action); });

TEST_F(LostRank, KilledInTheMiddleOfAStepLeavesATraceThatSaysSo) {
  const ProcessResult result = run_process(pass("--at 1 --do kill"));
  EXPECT_EQ(result.signal, SIGKILL);
  EXPECT_GT(RankFile(step_file(candidate(), 0, 0)).records().size(), 10U);
  EXPECT_FALSE(fs::exists(step_file(candidate(), 1, 0)));
  expect_refused(
      ttrace({"diff", candidate(), candidate()}),
      {"rank 0 was stopped while it wrote step 1", step_file(candidate(), 1, 0) + ".tmp"});
}

TEST_F(LostRank, ProgramThatExitsInAStepNeverCrashesOrHangsTheWriter) {
  // The writer is busy or idle by chance, so more than one try.
  for (int i = 0; i < 5; ++i) {
    fs::remove_all(candidate());
    const ProcessResult result = run_process(pass("--at 1 --do exit"));
    EXPECT_EQ(result.exit_code, 3) << result.err;
    EXPECT_FALSE(fs::exists(step_file(candidate(), 1, 0)));
  }
}

TEST_F(LostRank, RunCanBeRepeatedInTheSameFolder) {
  static_cast<void>(run_process(pass("--at 0 --do kill")));
  EXPECT_EQ(run_process(pass("")).exit_code, 0);
  EXPECT_GT(RankFile(step_file(candidate(), 1, 0)).records().size(), 10U);
  EXPECT_EQ(ttrace({"diff", candidate(), candidate()}).exit_code, 0);
}

TEST_F(LostRank, SecondProgramInTheSameFolderIsRefusedAndTheFirstFinishes) {
  RunningProcess first(pass("--at 0 --meet " + (folder_ / "second-has-ended")));
  const std::string temporary = step_file(candidate(), 0, 0) + ".tmp";
  while (!fs::exists(temporary)) {
    std::this_thread::yield();
  }
  const ProcessResult second = run_process(pass(""));
  EXPECT_EQ(second.exit_code, 0) << "training goes on";
  EXPECT_THAT(second.err,
              AllOf(HasSubstr(temporary + ": another process is writing this file"),
                    HasSubstr("every run its own TTRACE_DIR")));
  write_bytes(folder_ / "second-has-ended", "");
  EXPECT_EQ(first.wait().exit_code, 0);
  EXPECT_GT(RankFile(step_file(candidate(), 0, 0)).records().size(), 10U);
}

TEST_F(LostRank, SecondProgramAfterTheFirstIsRefused) {
  EXPECT_EQ(run_process(pass("")).exit_code, 0);
  const std::string before = read_text(step_file(candidate(), 0, 0));
  const ProcessResult second = run_process(pass(""));
  EXPECT_THAT(second.err,
              HasSubstr(step_file(candidate(), 0, 0) +
                        ": the file exists already; choose another TTRACE_DIR, or remove it"));
  EXPECT_EQ(read_text(step_file(candidate(), 0, 0)), before);
}

TEST_F(LostRank, ProgramThatNeverLooksAtTTraceIsAskedForItsVariables) {
  const ProcessResult result = ttrace(check(traced(), "echo trained; : " + folder_.path()));
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err,
              AllOf(Not(HasSubstr("exited with status 0")),
                    HasSubstr("the program never called ttrace.attach"),
                    HasSubstr("let its launcher forward the TTRACE_* variables")));
}

TEST_F(LostRank, ProgramWhoseVariablesWereLostIsAskedForThem) {
  const ProcessResult result = ttrace(check(traced(), "env -u TTRACE_PASS " + traced()));
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("let its launcher forward the TTRACE_* variables"));
  EXPECT_THAT(result.err, HasSubstr("trained to the end"));
}

TEST_F(LostRank, ProgramOfTooFewStepsIsNamed) {
  const ProcessResult result = ttrace(check(traced(), traced(), {"--steps", "2:4"}));
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("the reference pass failed: the program ran steps 0 to 2, never 3;"),
                    HasSubstr("the program ended before iteration 3, the last one of "
                              "TTRACE_STEPS")));
}

TEST_F(LostRank, UnknownPassIsRefusedByTheProgram) {
  ProcessOptions options = pass("");
  options.environment["TTRACE_PASS"] = "candidat";
  const ProcessResult result = run_process(options);
  EXPECT_EQ(result.exit_code, 70);
  EXPECT_THAT(result.err, HasSubstr("TTRACE_PASS is 'candidat'; set it to "));
  EXPECT_FALSE(fs::exists(candidate()));
}

TEST_F(LostRank, DamagedStartParametersAreNamedByTheProgram) {
  ASSERT_EQ(run_check(traced()).exit_code, 0);
  const std::string start = folder_ / "run/reference/start/rank00000.h5";
  write_bytes(start, read_text(start).substr(0, 10000));
  const ProcessResult result =
      ttrace({"check", "--reference", "run/reference", "--candidate", traced(), "-o", "second"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, AllOf(HasSubstr("start/rank00000.h5"), HasSubstr("truncated")));
  EXPECT_THAT(result.err, Not(HasSubstr("never called")));
}

}  // namespace
}  // namespace ttrace::testing
