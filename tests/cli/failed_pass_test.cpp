#include "cli_fixture.h"

#include <filesystem>
#include <fstream>
#include <string>

namespace ttrace::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

class FailedPass : public CliTest {
 protected:
  // A program that prints this and ends with `status`.
  [[nodiscard]] std::string printing(const std::string& text, int status) const {
    std::ofstream(folder_ / "log.txt") << text;
    return "cat log.txt; exit " + std::to_string(status);
  }
};

// Symptom: a candidate that raised when it was started was reported after the reference and all of
// its noise passes.
TEST_F(FailedPass, ErrorsOfTheCandidateComeBeforeTheReferenceRuns) {
  const ProcessResult result = ttrace(check(trainer(), trainer("--exit-before 3")));
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(
      result.err,
      AllOf(StartsWith("ttrace: error: the dry candidate pass failed: the program exited with "
                       "status 3 before its first traced step was done\n"),
            HasSubstr("run/logs/dry.log ends with:"),
            HasSubstr("    out of luck\n"),
            Not(HasSubstr("never called"))));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "run/logs/reference.log"));
}

// The candidate's own errors first, then what the reference is asked for, and noise passes last.
TEST_F(FailedPass, NoiseRunsOnlyWhereReferenceAndCandidateAreThere) {
  const ProcessResult result =
      ttrace(check(trainer(), trainer("--only candidate --exit-before 3")));
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_TRUE(std::filesystem::exists(folder_ / "run/logs/reference.log"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "run/logs/noise-1.log"));
}

TEST_F(FailedPass, EarlyExitTellsPassStatusLogAndWhatCanBeReused) {
  const ProcessResult result =
      ttrace(check(trainer(), trainer("--only candidate --exit-before 3")));
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.out, IsEmpty());
  EXPECT_THAT(result.err,
              AllOf(StartsWith("ttrace: error: the candidate pass failed: the program exited with "
                               "status 3 before the trace was complete\n"),
                    HasSubstr("run/logs/candidate.log ends with:"),
                    HasSubstr("    out of luck\n"),
                    HasSubstr("pass --reference run/reference to reuse it"),
                    Not(HasSubstr("never called"))));
  EXPECT_TRUE(std::filesystem::exists(folder_ / "run/reference/step000000/rank00000.h5"));
}

TEST_F(FailedPass, StatusAfterCompletionDoesNotMatter) {
  const ProcessResult result = ttrace(check(trainer("--exit-after 1"), trainer("--exit-after 9")));
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(
      result.out,
      AllOf(
          HasSubstr("\n             later (reference): its program exited with status 1 after the "
                    "traced steps; run/logs/reference.log says why\n"),
          HasSubstr("\n             later (candidate): its program exited with status 9 after")));
}

TEST_F(FailedPass, WhatFailedLaterIsAnErrorWhereTheUserRequiresIt) {
  const ProcessResult result =
      ttrace(check(trainer(), trainer("--exit-after 9"), {"--require", "later,output"}));
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(
      result.out,
      AllOf(StartsWith("NOT JUDGED: what --require asks for was not seen\n"),
            HasSubstr("\n  required   --require later is not met: later (candidate): its program "
                      "exited with status 9")));
  EXPECT_EQ(ttrace({"diff", "run", "--require", "output"}).exit_code, 0);
  EXPECT_EQ(ttrace({"diff", "run", "--require", "all"}).exit_code, 2);
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
              AllOf(HasSubstr("the noise 1 of 1 pass failed"),
                    HasSubstr("run/logs/noise-1.log"),
                    HasSubstr("pass --reference run/reference to go on with the noise passes")));
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

TEST_F(FailedPass, ProgramThatNeverAttachedIsToldSo) {
  const ProcessResult result = ttrace(check(trainer(), trainer("--never-attach")));
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("the program never called ttrace.attach"),
                    HasSubstr("let its launcher forward the TTRACE_* variables"),
                    Not(HasSubstr("exited with status 0"))));
}

// Symptom: `--steps 5` of a program with three steps, and a forgotten `tracer.step`, were both said
// as "exited with status 0 before the trace was complete".
TEST_F(FailedPass, StepsThatNeverBeganAreSaidAsThat) {
  const ProcessResult few =
      ttrace(check(trainer("--has-steps 3"), trainer("--ranks 2"), {"--steps", "5"}));
  EXPECT_EQ(few.exit_code, 2);
  EXPECT_THAT(few.err,
              AllOf(HasSubstr("the reference pass failed: the program ran steps 0 to 2, never 5;"),
                    Not(HasSubstr("exited with status 0"))));
  std::filesystem::remove_all(folder_ / "run");
  const ProcessResult none = ttrace(check(trainer(), trainer("--has-steps 0")));
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_THAT(none.err,
              AllOf(HasSubstr("the dry candidate pass failed: the program attached, but no "
                              "`tracer.step(0)` ran"),
                    Not(HasSubstr("exited with status 0"))));
}

// Symptom: a program that raised in its own constructor was asked whether its launcher forwarded
// variables, and the exception stood somewhere in the last lines of its log, or above them.
TEST_F(FailedPass, AnExceptionOfTheProgramComesFirstAndNoAdviceFollows) {
  const std::string log =
      "[rank1]: Traceback (most recent call last):\n"
      "[rank0]: Traceback (most recent call last):\n"
      "[rank1]:   File \"train.py\", line 88, in build\n"
      "[rank1]:     model = Model(heads)\n"
      "[rank1]:   File \"/usr/lib/python3/site-packages/torch/nn.py\", line 3, in view\n"
      "[rank0]:   File \"train.py\", line 90, in build\n"
      "[rank1]: ValueError: 30 is not divisible by 4\n"
      "[rank0]: RuntimeError: Connection closed by peer\n"
      "Traceback (most recent call last):\n"
      "  File \"/usr/bin/torchrun\", line 8, in <module>\n"
      "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n";
  const ProcessResult result =
      ttrace(check(trainer(), "seq 1 100; " + printing(log + std::string(100, '\n'), 1)));
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("exited with status 1 before its first traced step was done\n"
                              "  rank 1 raised ValueError: 30 is not divisible by 4\n"
                              "    at train.py:88, in build\n"),
                    Not(HasSubstr("never called"))));
}

// Symptom: the quoted end of the log was torchrun's report of exit codes and hosts.
TEST_F(FailedPass, WhatTorchrunPrintsOfFailedProcessesHidesNothing) {
  const std::string log =
      "reading the data\n"
      "[rank1]: Traceback (most recent call last):\n"
      "[rank1]:   File \"train.py\", line 88, in build\n"
      "[rank1]: ValueError: 30 is not divisible by 4\n"
      "W1127 23:50:31 21490 torch/distributed/elastic/multiprocessing/api.py:1010] Sending process "
      "7\n"
      "E1127 23:50:31 21490 torch/distributed/elastic/multiprocessing/api.py:984] failed "
      "(exitcode: 1)\n"
      "Traceback (most recent call last):\n"
      "  File \"/usr/bin/torchrun\", line 8, in <module>\n"
      "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n";
  const ProcessResult result = ttrace(check(trainer(), printing(log, 1)));
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("rank 1 raised ValueError: 30 is not divisible by 4"),
                    HasSubstr("    reading the data\n"),
                    Not(HasSubstr("torch/distributed/elastic"))));
  const ProcessResult alone = ttrace({"check",
                                      "--reference",
                                      printing(log.substr(log.find("E1127")), 1),
                                      "--candidate",
                                      "cat log.txt; exit 1",
                                      "-o",
                                      "alone"});
  EXPECT_THAT(alone.err, HasSubstr("failed (exitcode: 1)"));
}

// Symptom: a rank that the kernel killed prints nothing, and torchrun's report was cut off: "the
// program exited with status 1", and nothing else.
TEST_F(FailedPass, ARankThatASignalEndedIsNamedFromItsLaunchersReport) {
  const std::string torchruns =
      "W1127 23:50:31 1 torch/distributed/elastic/multiprocessing/api.py:1010] Sending process 7\n"
      "E1127 23:50:31 1 torch/distributed/elastic/multiprocessing/api.py:984] failed (exitcode: "
      "-9) local_rank: 1 (pid: 7) of binary: python\n";
  EXPECT_THAT(ttrace(check(trainer(), printing(torchruns, 1))).err,
              HasSubstr("\n  rank 1 was ended by signal 9 (Killed)\n"));
  std::filesystem::remove_all(folder_ / "run");
  const std::string mpiruns =
      "mpirun noticed that process rank 0 with PID 0 on node a exited on signal 11 (Segmentation "
      "fault).\n";
  EXPECT_THAT(ttrace(check(trainer(), printing(mpiruns, 139))).err,
              HasSubstr("\n  rank 0 was ended by signal 11 (Segmentation fault)\n"));
}

TEST_F(FailedPass, OfExceptionsThatFollowFromEachOtherTheLastIsQuoted) {
  const std::string log =
      "Traceback (most recent call last):\n"
      "  File \"data.py\", line 4, in read\n"
      "KeyError: 'tokens'\n\n"
      "The above exception was the direct cause of the following exception:\n\n"
      "Traceback (most recent call last):\n"
      "  File \"train.py\", line 12, in <module>\n"
      "ValueError: the batch has no tokens\n";
  const ProcessResult result = ttrace(check(trainer(), printing(log, 1)));
  EXPECT_THAT(result.err,
              HasSubstr("  it raised ValueError: the batch has no tokens\n"
                        "    at train.py:12, in <module>\n"));
}

TEST_F(FailedPass, AnExceptionOfCppIsQuotedToo) {
  const std::string log =
      "[1,0]<stderr>:terminate called after throwing an instance of 'std::runtime_error'\n"
      "[1,0]<stderr>:  what():  no GPU\n";
  const ProcessResult result = ttrace(check(trainer(), printing(log, 134)));
  EXPECT_THAT(result.err, HasSubstr("  rank 0 raised std::runtime_error: no GPU\n"));
}

TEST_F(FailedPass, FailureOfARankEndsTheRunAtOnceAndIsQuoted) {
  const ProcessResult result = ttrace(check(trainer(), trainer("--only candidate --fail-step")));
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
