#include "cli_fixture.h"

#include <filesystem>

namespace ttrace::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class EstimateTest : public CliTest {
 protected:
  // The trainer's four tensors of hidden size 8: 32x8, 8x8x32, 8x8x8 and again 32x8 floats.
  static constexpr const char* kTable =
      "one pass of the reference would record:\n"
      "  step    kind                 tensors             bytes\n"
      "  0       output                     2             10240\n"
      "  0       param                      1              1024\n"
      "  0       main_grad                  1              1024\n"
      "  all                                4             12288\n";
};

TEST_F(EstimateTest, CountsByKindWithoutWritingATrace) {
  const ProcessResult result =
      ttrace({"check", "--estimate", "--reference", trainer(), "-o", "deep/run"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(
      result.out,
      AllOf(HasSubstr(kTable),
            HasSubstr("reference: 2.1 MB, with start parameters\n"),
            HasSubstr("noise: 5 passes of 1.1 MB\n"),
            HasSubstr("candidate: at least 1.1 MB; "),
            HasSubstr("forced passes: at most 3.2 MB, because one of them uses a wider type; "),
            HasSubstr("needed at deep/run: at least 11.6 MB; free: ")));
  EXPECT_THAT(result.err, IsEmpty());
  EXPECT_FALSE(fs::exists(folder_ / "deep"));
  EXPECT_FALSE(fs::exists(folder_ / "runs"));
}

TEST_F(EstimateTest, GoldenPassIsCountedWhereAskedFor) {
  const ProcessResult result =
      ttrace({"check", "--estimate", "--golden", "--reference", trainer(), "-o", "deep/run"});
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("golden pass: at most 4.3 MB, because it uses f64\n"),
                    HasSubstr("needed at deep/run: at least 15.9 MB; free: ")));
}

TEST_F(EstimateTest, StoredReferenceIsCountedAsItLies) {
  ASSERT_EQ(ttrace(check(trainer(), trainer())).exit_code, 0);
  const ProcessResult result =
      ttrace({"check", "--estimate", "--reference", "run/reference", "-o", "again"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out,
              AllOf(HasSubstr(kTable), HasSubstr("stored already"), Not(HasSubstr("noise: "))));
}

TEST_F(EstimateTest, EveryTracedStepIsListed) {
  const ProcessResult result =
      ttrace({"check", "--estimate", "--reference", trainer(), "--steps", "3:5", "--noise", "0"});
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("  3       param "),
                    HasSubstr("  4       param "),
                    HasSubstr("  all                                8             24576\n")));
}

TEST_F(EstimateTest, FailedProgramIsQuotedAndItsLogKept) {
  ProcessOptions asked =
      options({"check", "--estimate", "--reference", "echo out of luck; exit 3"});
  asked.environment["TMPDIR"] = folder_.path();
  const ProcessResult result = run_process(asked);
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(
      result.err,
      AllOf(HasSubstr("the counting reference pass failed: the program exited with status 3"),
            HasSubstr("out of luck")));
  const auto kept = std::distance(fs::directory_iterator(folder_.path()), fs::directory_iterator());
  EXPECT_EQ(kept, 1) << result.err;
}

// A file system of `size` in a name space of its own, in which `command` runs below mount/.
ProcessOptions on_small_disk(ProcessOptions asked,
                             const std::string& size,
                             const std::string& command) {
  asked.arguments = {
      "unshare",
      "--map-root-user",
      "--mount",
      "/bin/sh",
      "-c",
      "mkdir -p mount && mount -t tmpfs -o size=" + size + " none mount || exit 77; " + command};
  return asked;
}

TEST_F(EstimateTest, CandidateIsNotStartedWhereItsTraceCannotFit) {
  // With a hidden size of 64, a trace has 5.4 MB: one fits into 8 MB, but two do not.
  const std::string check = std::string(TTRACE_PROGRAM) + " check --reference '" +
                            trainer("--hidden 64") + "' --noise 0 --candidate '" +
                            trainer("--hidden 64") + "' -o mount/run";
  const ProcessResult result = run_process(
      on_small_disk(options({}), "8m", check + "; code=$?; cp -r mount/run/logs kept; exit $code"));
  if (result.exit_code == 77 || result.exit_code == 127 || result.err.starts_with("unshare:")) {
    GTEST_SKIP() << "cannot mount a small disk here: " << result.err;
  }
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("the candidate's trace needs at least 5.4 MB, as much as the "
                              "reference's, but "),
                    HasSubstr(" are free in mount/run; free space there, choose another folder for "
                              "-o with --reference mount/run/reference, or pass --ignore-space")));
  EXPECT_TRUE(fs::exists(folder_ / "kept/reference.log"));
  EXPECT_FALSE(fs::exists(folder_ / "kept/candidate.log"));
  const ProcessResult forced =
      run_process(on_small_disk(options({}), "8m", check + " --ignore-space"));
  EXPECT_EQ(forced.exit_code, 2);
  EXPECT_THAT(forced.err, HasSubstr("the candidate pass failed"));
}

TEST_F(EstimateTest, TooLittleSpaceForTheEstimateIsNoSuccess) {
  const ProcessResult result =
      run_process(on_small_disk(options({}),
                                "8m",
                                std::string(TTRACE_PROGRAM) + " check --estimate --reference '" +
                                    trainer("--hidden 64") + "' -o mount/run"));
  if (result.exit_code == 77 || result.exit_code == 127 || result.err.starts_with("unshare:")) {
    GTEST_SKIP() << "cannot mount a small disk here: " << result.err;
  }
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.out, HasSubstr(", which is too little\n"));
}

}  // namespace
}  // namespace ttrace::testing
