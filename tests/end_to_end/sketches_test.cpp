// Checks whose traces keep sketches (TTRACE_KEEP=sketch), with the example programs.
#include "end_to_end/small_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <string>

namespace ttrace::testing {
namespace {

using ::testing::HasSubstr;

// Weights and activations of 64 KiB.
SmallRun wide_run() {
  return SmallRun({{"model.hidden", "128"},
                   {"model.ffn", "256"},
                   {"model.sequence", "128"},
                   {"model.layers", "2"}},
                  "bf16");
}

ProcessResult check(const SmallRun& run, const std::string& name, const std::string& layout) {
  return run_process({.arguments = {std::string(TTRACE_BIN) + "/ttrace",
                                    "check",
                                    "--reference",
                                    run.reference(),
                                    "--candidate",
                                    run.candidate(layout),
                                    "-o",
                                    run.folder(name)},
                      .environment = {{"TTRACE_KEEP", "sketch"}, {"OMP_NUM_THREADS", "1"}},
                      .directory = TTRACE_SOURCE});
}

TEST(Sketches, ARightRunIsWithinBoundWithoutElements) {
  const SmallRun run = wide_run();
  const ProcessResult result = check(run, "clean", "--tp 2 --sp");
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_GT(run.report("clean")["counts"]["within_bound"].get<int>(), 80);
  EXPECT_FALSE(std::filesystem::exists(run.folder("clean") + "/bytes"));
  EXPECT_FALSE(std::filesystem::exists(run.folder("clean") + "/forced-wide"));
  const ProcessResult shown = ttrace_program({"show",
                                              run.folder("clean") + "/candidate",
                                              "s0/m0/output/decoder.layers.0.mlp.linear_fc1/0"});
  EXPECT_EQ(shown.exit_code, 0) << shown.err;
  EXPECT_THAT(shown.out, HasSubstr("the trace keeps a sketch of this tensor"));
}

TEST(Sketches, WhatTheyFindIsLookedIntoWithElements) {
  const SmallRun run = wide_run();
  const ProcessResult result = check(run, "wrong", "--tp 2 --sp --bug tp-forward-allreduce");
  EXPECT_EQ(result.exit_code, 1) << result.out << result.err;
  const nlohmann::json report = run.report("wrong");
  EXPECT_THAT(report["remarks"].dump(), HasSubstr("the candidate repeated itself in every bit"));
  EXPECT_EQ(report.at("first_divergence").at("signature"), "missing_reduction");
  EXPECT_TRUE(std::filesystem::exists(run.folder("wrong") + "/bytes/forced-wide/manifest.json"));
}

TEST(Sketches, WhatNeedsElementsIsRefused) {
  const SmallRun run = wide_run();
  const ProcessResult result = run_process({.arguments = {std::string(TTRACE_BIN) + "/ttrace",
                                                          "check",
                                                          "--dyadic",
                                                          "--reference",
                                                          run.reference(),
                                                          "--candidate",
                                                          run.candidate("--tp 2"),
                                                          "-o",
                                                          run.folder("dyadic")},
                                            .environment = {{"TTRACE_KEEP", "sketch"}},
                                            .directory = TTRACE_SOURCE});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("--dyadic demands equal elements"));
}

}  // namespace
}  // namespace ttrace::testing
