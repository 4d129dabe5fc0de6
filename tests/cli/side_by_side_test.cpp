#include "cli_fixture.h"

#include <nlohmann/json.hpp>

#include <string>

namespace ttrace::testing {
namespace {

using ::testing::HasSubstr;

class SideBySide : public CliTest {
 protected:
  // A reference whose noise passes run `noise` before the trainer.
  [[nodiscard]] std::string reference(const std::string& noise) const {
    return "n=$TTRACE_NOISE_SEED; if [ $TTRACE_PASS = noise ]; then " + noise + "; fi; " +
           trainer();
  }

  [[nodiscard]] ProcessResult run(const std::string& noise, const std::string& jobs) const {
    return ttrace({"check",
                   "--reference",
                   reference(noise),
                   "--candidate",
                   trainer("--ranks 2"),
                   "--noise",
                   "2",
                   "--jobs",
                   jobs,
                   "-o",
                   "run"});
  }
};

// Each noise pass waits for the other one to begin, so that one after the other neither would end.
TEST_F(SideBySide, NoisePassesRunAtTheSameTime) {
  const ProcessResult result =
      run("touch began.$n; until [ -e began.$((3 - n)) ]; do sleep 0.01; done", "2");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const auto report = nlohmann::json::parse(file("run/report.json"));
  EXPECT_EQ(report.at("verdict"), "clean");
}

TEST_F(SideBySide, OneAtATimeRunsInOrder) {
  const ProcessResult result = run("echo $n >> order", "1");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(file("order"), "1\n2\n");
}

// As where both bind one port: the second one fails while the first one holds it.
TEST_F(SideBySide, APassThatFailsBesideAnotherRunsOnceMoreAlone) {
  const ProcessResult result =
      run("echo $n >> order; if [ -e failed ]; then :; "
          "elif mkdir port; then until [ -e failed ]; do sleep 0.01; done; "
          "else touch failed; exit 1; fi",
          "2");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(file("order").size(), 6U) << "three tries of two passes";
}

TEST_F(SideBySide, APassThatFailsAloneAsWellIsNamedWithItsLog) {
  const ProcessResult result = run("if [ $n = 2 ]; then echo no memory; exit 3; fi", "2");
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err,
              HasSubstr("the noise 2 of 2 pass failed: the program exited with status 3"));
  EXPECT_THAT(result.err, HasSubstr("no memory"));
}

TEST_F(SideBySide, AnInterruptEndsAllPassesThatRun) {
  RunningProcess running(options({"check",
                                  "--reference",
                                  reference("touch began.$n; " + trainer("--hang")),
                                  "--candidate",
                                  trainer("--ranks 2"),
                                  "--noise",
                                  "2",
                                  "--jobs",
                                  "2",
                                  "-o",
                                  "run"}));
  ASSERT_TRUE(appears("began.1") && appears("began.2"));
  kill(running.pid(), SIGINT);
  EXPECT_EQ(running.wait().exit_code, 128 + SIGINT);
}

}  // namespace
}  // namespace ttrace::testing
