// `ttrace laws` and `ttrace watch` with the example programs: no reference takes part.
#include "end_to_end/small_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace ttrace::testing {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

ProcessResult watch(const SmallRun& run,
                    const std::string& name,
                    const std::string& layout,
                    std::vector<std::string> options) {
  std::vector<std::string> arguments = {"watch", "-o", run.folder(name)};
  arguments.insert(arguments.end(), options.begin(), options.end());
  arguments.push_back(run.candidate(layout));
  return ttrace_program(arguments);
}

std::vector<json> lines_of(const SmallRun& run, const std::string& name) {
  std::ifstream file(run.folder(name) + "/watch.jsonl");
  std::vector<json> lines;
  for (std::string line; std::getline(file, line);) {
    lines.push_back(json::parse(line));
  }
  return lines;
}

TEST(Watch, ARightProgramRunsToItsEndAndLeavesALineForEveryWatchedStep) {
  const SmallRun run({}, "bf16", 7);
  const ProcessResult result = watch(run, "clean", "--tp 2 --sp --dp 2", {"--every", "3"});
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_THAT(result.out, HasSubstr("step 6 loss"));  // the program's own
  std::vector<int> steps;
  for (const json& line : lines_of(run, "clean")) {
    steps.push_back(line["step"]);
    EXPECT_EQ(line["verdict"], "hold");
    EXPECT_GT(line["laws"], 100);
    EXPECT_LT(line["largest"], 0.75);
  }
  EXPECT_THAT(steps, ElementsAre(0, 3, 6));
  EXPECT_FALSE(std::filesystem::exists(run.folder("clean") + "/trace/step000000"));
}

TEST(Watch, AMissingSumEndsTheProgramAtTheModuleThatLacksIt) {
  const SmallRun run({}, "bf16", 1000);
  const ProcessResult result =
      watch(run, "wrong", "--tp 2 --bug tp-forward-allreduce", {"--every", "2", "--stop"});
  EXPECT_EQ(result.exit_code, 1) << result.out << result.err;
  EXPECT_THAT(result.err, HasSubstr("BROKEN  decoder.layers.1.mlp.linear_fc2: output, step 0"));
  EXPECT_THAT(result.out, HasSubstr("the program was ended"));
  const json first = lines_of(run, "wrong").at(0);
  EXPECT_EQ(first["broken"][0]["id"], "s0/m0/output/decoder.layers.1.mlp.linear_fc2/0");
  EXPECT_EQ(first["broken"][0]["law"], "output");
  const ProcessResult again =
      ttrace_program({"laws", "--format", "json", run.folder("wrong") + "/trace"});
  EXPECT_EQ(again.exit_code, 1) << again.err;
  EXPECT_EQ(json::parse(again.out)["broken"][0]["id"], first["broken"][0]["id"]);
}

TEST(Watch, AProgramThatFailsSaysSo) {
  const SmallRun run({}, "bf16");
  const ProcessResult result = watch(run, "failed", "--no-such-option", {});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("the program exited with status"));
  EXPECT_THAT(result.out, HasSubstr("NOT JUDGED"));
}

TEST(Laws, HoldInBothTracesOfARightCheck) {
  const SmallRun run({}, "fp8");
  ASSERT_EQ(run.check("clean", "--tp 2", {"--no-forced"}).exit_code, 0);
  for (const char* side : {"/reference", "/candidate"}) {
    const ProcessResult result =
        ttrace_program({"laws", "--format", "json", run.folder("clean") + side});
    EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
    EXPECT_GT(json::parse(result.out)["laws"], 20);
  }
  const ProcessResult result = ttrace_program({"laws",
                                               "--reference",
                                               run.folder("clean") + "/reference",
                                               run.folder("clean") + "/candidate"});
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_THAT(result.out, HasSubstr("HOLD  all "));
}

}  // namespace
}  // namespace ttrace::testing
