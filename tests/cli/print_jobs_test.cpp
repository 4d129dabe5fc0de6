// `ttrace check --print-jobs`: the printed script does what the check does.
#include "cli_fixture.h"

#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

namespace ttrace::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class PrintJobs : public CliTest {
 protected:
  // What bash makes of the script that these arguments of check print, or of some of its jobs.
  [[nodiscard]] ProcessResult run_jobs(const std::vector<std::string>& jobs = {},
                                       const std::map<std::string, std::string>& environment = {
                                           {"TTRACE_CANDIDATE", "elsewhere"}}) const {
    ProcessOptions script = options({});
    script.arguments = {"/bin/bash", folder_ / "jobs.sh"};
    script.arguments.insert(script.arguments.end(), jobs.begin(), jobs.end());
    script.directory = "/";  // jobs start anywhere
    script.environment = environment;
    return run_process(script);
  }
  void print(std::vector<std::string> arguments) const {
    arguments.emplace_back("--print-jobs");
    const ProcessResult printed = ttrace(std::move(arguments));
    ASSERT_EQ(printed.exit_code, 0) << printed.err;
    EXPECT_FALSE(std::filesystem::exists(folder_ / "run"));  // nothing has run
    std::ofstream(folder_ / "jobs.sh") << printed.out;
  }
  // Runs a check and then its jobs in a folder of the same name; both must tell the same.
  void expect_same(const std::vector<std::string>& arguments) {
    const ProcessResult checked = ttrace(arguments);
    std::filesystem::rename(folder_ / "run", folder_ / "checked");
    print(arguments);
    const ProcessResult jobs = run_jobs();
    EXPECT_EQ(jobs.exit_code, checked.exit_code) << jobs.err;
    EXPECT_EQ(jobs.out, checked.out) << jobs.err;
    for (const char* report : {"report.txt", "report.json"}) {
      EXPECT_EQ(file("run/" + std::string(report)), file("checked/" + std::string(report)));
    }
  }
};

TEST_F(PrintJobs, OfACleanRunGiveTheReportOfTheCheck) {
  expect_same(check(trainer(), trainer("--ranks 2"), {"--golden", "--self-check"}));
  for (const char* name : {"reference/noise/self.h5",
                           "reference/noise/00001.h5",
                           "forced-wide/manifest.json",
                           "forced-native/manifest.json",
                           "golden/manifest.json",
                           "logs/candidate.log"}) {
    EXPECT_TRUE(std::filesystem::exists(folder_ / ("run/" + std::string(name)))) << name;
  }
  EXPECT_THAT(file("run/logs/candidate.log"), Not(HasSubstr("TTRACE_CANDIDATE")));
  EXPECT_THAT(file("run/logs/forced-wide.log"), HasSubstr("TTRACE_PRECISION=f64\n"));
}

TEST_F(PrintJobs, HandOnHowToJudgeAndHowToReport) {
  expect_same(check(trainer(),
                    trainer("--ranks 2 --differ"),
                    {"--steps",
                     "0:2",
                     "--precision",
                     "f32",
                     "--start",
                     "own",
                     "--no-forced",
                     "--kinds",
                     "output,main_grad",
                     "--exclude",
                     "it's none",
                     "--rtol",
                     "fc1.*:1e-5",
                     "--max-report",
                     "1",
                     "--allow-failed",
                     "s1/",
                     "--format",
                     "json",
                     "--no-color"}));
  EXPECT_THAT(file("run/logs/noise-1.log"),
              AllOf(HasSubstr("TTRACE_STEPS=0:2\n"), HasSubstr("TTRACE_START=own\n")));
}

TEST_F(PrintJobs, RepeatTheReferenceWhereExpertsFlip) {
  expect_same(
      check(trainer("--route 0,1,2,3"), trainer("--ranks 2 --route 0,1,2,5"), {"--golden"}));
  EXPECT_TRUE(std::filesystem::exists(folder_ / "run/rerouted/noise/00001.h5"));
  EXPECT_THAT(file("run/logs/golden.log"), HasSubstr("/run/candidate\n"));
  // A factor common to all gradients was not known in the forced passes of a second step, in which
  // the reference with its own choices tells nothing: 85 alarms of a right program.
  EXPECT_THAT(file("run/logs/forced-wide.log"), HasSubstr("/run/rerouted\n"));
}

TEST_F(PrintJobs, LeaveOutWhatEqualChoicesDoNotNeed) {
  expect_same(check(trainer("--route 0,1,2,3"), trainer("--ranks 2 --route 0,1,2,3")));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "run/rerouted"));
}

TEST_F(PrintJobs, MakeTheSelfCheckWhereTheDeviceNeedsIt) {
  const std::string machine = "--machine device=cuda,deterministic_algorithms=off";
  expect_same(check(trainer(machine), trainer(machine)));
  EXPECT_TRUE(std::filesystem::exists(folder_ / "run/reference/noise/self.h5"));
}

TEST_F(PrintJobs, RenameWhereNamesDiffer) {
  std::ofstream(folder_ / "names.yaml") << R"(tensors:
  - {reference: "layers.*.fc1", candidate: "decoder.layers.*.mlp.linear_fc1"}
  - {reference: "layers.*.fc2", candidate: "decoder.layers.*.mlp.linear_fc2"}
)";
  expect_same(check(trainer("--plain"), trainer("--ranks 2"), {"--rename", "names.yaml"}));
}

TEST_F(PrintJobs, UseAStoredReferenceAndItsRerun) {
  ASSERT_EQ(ttrace(check(trainer(), trainer())).exit_code, 0);
  std::filesystem::rename(folder_ / "run", folder_ / "stored");
  expect_same({"check",
               "--reference",
               "stored/reference",
               "--candidate",
               trainer("--differ"),
               "--rerun",
               trainer(),
               "-o",
               "run"});
  EXPECT_TRUE(std::filesystem::is_symlink(folder_ / "run/reference"));
}

// A job once ran with a ring of another size than the check that it stands for.
TEST_F(PrintJobs, KeepWhatTheUserSaysOfHowToTrace) {
  print(check(trainer(), trainer()));
  const std::map<std::string, std::string> variables{{"TTRACE_FILTER", "fc1"},
                                                     {"TTRACE_LOG", "error"},
                                                     {"TTRACE_NAMED", "1"},
                                                     {"TTRACE_ON_ERROR", "raise"},
                                                     {"TTRACE_RING_BYTES", "20000"},
                                                     {"TTRACE_SYNC", "stream"}};
  EXPECT_EQ(run_jobs({"reference"}, variables).exit_code, 0);
  for (const auto& [name, value] : variables) {
    EXPECT_THAT(file("run/logs/reference.log"), HasSubstr(name + "=" + value + "\n"));
  }
}

TEST_F(PrintJobs, RunOneByOneAndStopAtAFailure) {
  print(check(trainer(), trainer("--exit-before 3")));
  EXPECT_EQ(run_jobs({"reference"}).exit_code, 0);
  EXPECT_EQ(run_jobs({"noise-1"}).exit_code, 0);
  EXPECT_TRUE(std::filesystem::exists(folder_ / "run/reference/noise/00001.h5"));
  const ProcessResult failed = run_jobs({"candidate", "diff"});
  EXPECT_EQ(failed.exit_code, 2);
  EXPECT_THAT(failed.err,
              AllOf(HasSubstr("the command of job candidate failed"), HasSubstr("out of luck")));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "run/report.txt"));
  const ProcessResult unknown = run_jobs({"noise-9"});
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_THAT(unknown.err,
              HasSubstr("there is no job noise-9; the jobs are reference candidate "
                        "rerouted-reference self-check"));
}

TEST_F(PrintJobs, ForcedPassThatFailsLeavesTheComparison) {
  print(check(trainer("--only forced --exit-before 3"), trainer()));
  const ProcessResult jobs = run_jobs();
  EXPECT_EQ(jobs.exit_code, 0) << jobs.err;
  EXPECT_THAT(jobs.err, HasSubstr("the comparison continues without job forced-wide"));
}

TEST_F(PrintJobs, SayWhatTheyComeAfterAndNeedAFolder) {
  print(check(trainer(), trainer()));
  const std::string script = file("jobs.sh");
  EXPECT_THAT(script,
              AllOf(HasSubstr("#   noise-1             after: rerouted-reference\n"),
                    HasSubstr("#   forced-wide         after: rerouted-reference\n"),
                    HasSubstr("srun --export=ALL")));
  const ProcessResult nowhere =
      ttrace({"check", "--reference", trainer(), "--candidate", trainer(), "--print-jobs"});
  EXPECT_EQ(nowhere.exit_code, 2);
  EXPECT_THAT(nowhere.err, HasSubstr("pass -o FOLDER"));
}

}  // namespace
}  // namespace ttrace::testing
