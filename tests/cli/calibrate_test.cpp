#include "cli_fixture.h"

#include <nlohmann/json.hpp>

#include <filesystem>
#include <fstream>

namespace ttrace::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

class Calibrate : public CliTest {
 protected:
  // A check of a candidate that is `off` times as far from the reference as its noise is.
  ProcessResult check_run(const std::string& folder,
                          const std::string& switches,
                          const std::vector<std::string>& more = {"--no-forced"}) const {
    std::vector<std::string> arguments{"check",
                                       "--reference",
                                       trainer(),
                                       "--candidate",
                                       trainer(switches),
                                       "--noise",
                                       "2",
                                       "-o",
                                       folder};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return ttrace(arguments);
  }
  void store_clean_runs() const {
    ASSERT_EQ(check_run("clean-1", "--off 0.5").exit_code, 0);
    ASSERT_EQ(check_run("clean-2", "--off 0.6 --ranks 2").exit_code, 0);
    ASSERT_EQ(check_run("clean-3", "--off 0.7 --ranks 4").exit_code, 0);
  }
};

TEST_F(Calibrate, LimitsOfCleanRunsDecideOfTheNext) {
  store_clean_runs();
  const ProcessResult result =
      ttrace({"calibrate", "clean-1", "clean-2", "clean-3", "-o", "limits.json"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out,
              AllOf(StartsWith("statistic  runs  largest  shipped  calibrated\n"
                               "T2         3     0."),
                    HasSubstr("\n3 clean runs in f32, 1 limit: at most 1 % of clean runs are "
                              "expected to raise an alarm; the runs alone show that it is below "
                              "63.2 % (95 %)\n")));
  EXPECT_THAT(result.err, HasSubstr("the stated rate is an extrapolation from 3 runs"));
  const auto json = nlohmann::json::parse(file("limits.json"));
  EXPECT_EQ(json.at("schema"), 2);
  EXPECT_EQ(json.at("runs").size(), 3U);
  EXPECT_EQ(json.at("runs")[2].at("layout").at("tp"), "4");
  EXPECT_THAT(file("limits.json"), Not(HasSubstr("clean-")));
  const double limit = json.at("limits")[0].at("limit");
  EXPECT_GE(limit, 1.0);
  EXPECT_LT(limit, 1.25);

  // Chance explains 2.26 times the noise of two passes, and another kernel a quarter more.
  EXPECT_EQ(check_run("shipped", "--off 2.5").exit_code, 0);
  EXPECT_THAT(file("shipped/report.txt"),
              HasSubstr("limits     shipped defaults, not calibrated for this program"));
  const ProcessResult calibrated = check_run(
      "calibrated", "--off 2.5", {"--no-forced", "--calibration", "limits.json", "--details"});
  EXPECT_EQ(calibrated.exit_code, 1) << calibrated.err;
  EXPECT_THAT(
      calibrated.out,
      AllOf(HasSubstr("DIVERGED  decoder.layers.0.mlp.linear_fc1: output, step 0, micro-batch 0"),
            HasSubstr("(calibrated)"),
            HasSubstr("\n  limits     calibrated over 3 clean runs; fewer than 63.2 % of "
                      "clean runs raise a false alarm (95 % confidence)\n")));
  EXPECT_EQ(ttrace({"diff", "calibrated"}).exit_code, 0);
  const ProcessResult again =
      ttrace({"diff", "shipped", "--calibration", "limits.json", "--format", "json"});
  EXPECT_EQ(again.exit_code, 1);
  EXPECT_EQ(nlohmann::json::parse(again.out).at("calibration").at("runs"), 3);
  EXPECT_EQ(ttrace({"diff", "clean-2", "--calibration", "limits.json"}).exit_code, 0);
}

TEST_F(Calibrate, OperatorsAreCalibratedWhereRunsHaveForcedPasses) {
  ASSERT_EQ(check_run("clean-1", "--off 0.05", {}).exit_code, 0);
  ASSERT_EQ(check_run("clean-2", "--off 0.4").exit_code, 0);
  const ProcessResult result = ttrace({"calibrate", "clean-1", "clean-2", "-o", "limits.json"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("T2         2 "), HasSubstr("T1         1 ")));
  ASSERT_EQ(ttrace({"calibrate", "clean-2", "-o", "whole.json"}).exit_code, 0);
  EXPECT_THAT(ttrace({"diff", "clean-1", "--calibration", "whole.json"}).out,
              HasSubstr("; shipped limits, where those runs had no such checks: T1"));
}

TEST_F(Calibrate, RunWithAFindingIsRefusedAndNamed) {
  ASSERT_EQ(check_run("clean-1", "--off 0.5").exit_code, 0);
  ASSERT_EQ(check_run("wrong", "--differ").exit_code, 1);
  const ProcessResult result = ttrace({"calibrate", "clean-1", "wrong", "-o", "limits.json"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(
      result.err,
      "ttrace: error: wrong diverged, first at s0/m0/output/decoder.layers.0.mlp.linear_fc2/0; "
      "limits need runs that are known to be right, so leave it out, or pass --vouched if you know "
      "that it is right\n");
  EXPECT_FALSE(std::filesystem::exists(folder_ / "limits.json"));
}

// Symptom: a run that raised an alarm under the shipped limits was refused, so that limits followed
// from the runs that needed them least, and the stated rate was that of survivors.
TEST_F(Calibrate, TakesRunsThatRaiseAnAlarmWhereTheUserVouchesForThem) {
  ASSERT_EQ(check_run("clean-1", "--off 0.5").exit_code, 0);
  ASSERT_EQ(check_run("clean-2", "--off 1.5 --ranks 2").exit_code, 0);
  ASSERT_EQ(check_run("clean-3", "--off 3.5 --ranks 2").exit_code, 1);
  const std::vector<std::string> arguments = {
      "calibrate", "clean-1", "clean-2", "clean-3", "-o", "limits.json"};
  EXPECT_EQ(ttrace(arguments).exit_code, 2);
  std::vector<std::string> vouched = arguments;
  vouched.emplace_back("--vouched");
  const ProcessResult result = ttrace(vouched);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(
      result.out,
      AllOf(HasSubstr("\n3 clean runs, vouched for, in f32"),
            HasSubstr("\nOf all runs given, 1 of 3 (0.84 % to 90.6 %) raised an alarm under "
                      "the shipped limits, and 0 of 3 (0 % to 63.2 %) under these (95 % "
                      "confidence)\n")));
  const auto json = nlohmann::json::parse(file("limits.json"));
  EXPECT_EQ(json.at("vouched"), true);
  EXPECT_EQ(json.at("alarms"), (nlohmann::json{{"shipped", 1}, {"these", 0}}));
  const ProcessResult judged = ttrace({"diff", "clean-3", "--calibration", "limits.json"});
  EXPECT_EQ(judged.exit_code, 0);
  EXPECT_THAT(judged.out,
              HasSubstr("limits     calibrated over 3 runs that the user vouched for, of which 1 "
                        "raised an alarm under the shipped limits and 0 under these; fewer than"));
}

TEST_F(Calibrate, PrecisionsAreNotMixed) {
  ASSERT_EQ(check_run("clean-1", "--off 0.5").exit_code, 0);
  ASSERT_EQ(check_run("clean-2", "--off 0.5", {"--no-forced", "--precision", "bf16"}).exit_code, 0);
  const ProcessResult result = ttrace({"calibrate", "clean-1", "clean-2"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(result.err,
            "ttrace: error: clean-1 is in f32, but clean-2 is in bf16; calibrate each precision on "
            "its own\n");
  ASSERT_EQ(ttrace({"calibrate", "clean-1"}).exit_code, 0);
  const ProcessResult other = ttrace({"diff", "clean-2", "--calibration", "calibration.json"});
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_THAT(other.err,
              HasSubstr("calibration.json is for f32, but the reference computed in bf16"));
}

TEST_F(Calibrate, BrokenFileIsNamedBeforeAnythingRuns) {
  std::ofstream(folder_ / "limits.json") << "{\"format\": \"ttrace calibration\", \"schema\": 2}";
  const ProcessResult result = check_run("run", "", {"--calibration", "limits.json"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, StartsWith("ttrace: error: limits.json: the calibration is damaged: "));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "run"));
  EXPECT_THAT(check_run("run", "", {"--calibration", "none.json"}).err,
              HasSubstr("there is no calibration none.json; `ttrace calibrate` writes one"));
}

TEST_F(Calibrate, BadUsageIsExplained) {
  ASSERT_EQ(check_run("clean-1", "--off 0.5").exit_code, 0);
  const auto complaint = [this](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "calibrate");
    const ProcessResult result = ttrace(arguments);
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_THAT(result.out, IsEmpty());
    return result.err;
  };
  EXPECT_THAT(complaint({}),
              HasSubstr("calibrate needs at least one folder made by `ttrace check`"));
  EXPECT_THAT(complaint({"gone"}), HasSubstr("there is no folder gone"));
  EXPECT_THAT(complaint({"clean-1/reference"}), HasSubstr("was not made by ttrace check"));
  EXPECT_THAT(complaint({"clean-1", "./clean-1/"}), HasSubstr("./clean-1/ is given twice"));
  EXPECT_THAT(complaint({"clean-1", "--rate", "2"}), HasSubstr("--rate is 2; it must be above 0"));
  EXPECT_THAT(complaint({"clean-1", "-o", "clean-1"}), HasSubstr("clean-1 exists already"));
}

}  // namespace
}  // namespace ttrace::testing
