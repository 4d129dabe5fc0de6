#include "cli_fixture.h"

#include <nlohmann/json.hpp>

#include <filesystem>
#include <fstream>

namespace ttrace::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

// The trainer's step has four tensors: a parameter, two outputs, a gradient.
class Partial : public CliTest {
 protected:
  // A check whose candidate is killed within its step.
  void interrupt(const std::string& candidate_switches) {
    ASSERT_EQ(ttrace(check(trainer(), trainer(candidate_switches))).exit_code, 2);
  }
  [[nodiscard]] ProcessResult diff(const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments{"diff", "run", "--partial", "--details"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return ttrace(arguments);
  }
};

TEST_F(Partial, WhatWasFlushedIsComparedAndNeverCalledWithinBounds) {
  interrupt("--kill-after 3");
  EXPECT_EQ(ttrace({"diff", "run"}).exit_code, 2);
  EXPECT_THAT(ttrace({"diff", "run"}).err,
              HasSubstr("compare what it holds with `ttrace diff --partial`"));
  const ProcessResult result = diff();
  EXPECT_EQ(result.exit_code, 2) << result.err;
  EXPECT_THAT(
      result.out,
      AllOf(HasSubstr("PARTIAL: clean so far; the verdict covers only"),
            HasSubstr("candidate: rank 0 was stopped while it wrote step 0: 3 tensors were read "
                      "from what it had flushed to run/candidate/step000000/rank00000.h5.tmp"),
            HasSubstr("tensors 4, judged 3, within bound 3, incomplete 1")));
}

TEST_F(Partial, DivergenceInWhatIsThereCounts) {
  interrupt("--kill-after 3 --differ");
  const ProcessResult result = diff();
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("PARTIAL: DIVERGED; "),
                    HasSubstr("  decoder.layers.0.mlp.linear_fc2: output, step 0, micro-batch 0")));
}

TEST_F(Partial, TensorsThatTheMissingRankHoldsAPartOfAreIncomplete) {
  interrupt("--ranks 2 --kill-after 1");
  const ProcessResult result = diff({"--format", "json"});
  EXPECT_EQ(result.exit_code, 2);
  const auto json = nlohmann::json::parse(result.out);
  EXPECT_EQ(json["verdict"], "incomplete");
  EXPECT_EQ(json["partial"], true);
  EXPECT_EQ(json["lacking"].size(), 1U);
  EXPECT_EQ(json["first_divergence"], nullptr);
  // Both ranks flushed the parameter. Only rank 0 has the rest, and only one of its tensors is
  // whole.
  EXPECT_EQ(json["tensors"][0]["status"], "within");
  EXPECT_EQ(json["tensors"][1]["status"], "incomplete");
  EXPECT_EQ(json["tensors"][2]["status"], "within");
  EXPECT_EQ(json["tensors"][3]["status"], "incomplete");
}

TEST_F(Partial, RankThatWroteNothingIsNamed) {
  interrupt("--ranks 2 --kill-after 1");
  fs::remove(folder_ / "run/candidate/step000000/rank00001.h5.tmp");
  const ProcessResult result = diff();
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("candidate: rank 1 wrote nothing for step 0"),
                    HasSubstr("within bound 1"),
                    HasSubstr(", incomplete 3")));
}

TEST_F(Partial, InterruptedReferenceIsReadAsWell) {
  ASSERT_EQ(ttrace(check(trainer(), trainer("--differ"))).exit_code, 1);
  ASSERT_EQ(ttrace({"check",
                    "--reference",
                    trainer("--kill-after 2"),
                    "--candidate",
                    trainer(),
                    "-o",
                    "killed"})
                .exit_code,
            2);
  const ProcessResult result =
      ttrace({"diff", "killed/reference", "run/candidate", "--partial", "--details"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("reference: rank 0 was stopped"), HasSubstr(", incomplete 2")));
}

TEST_F(Partial, NothingFlushedAtAllCannotBeCompared) {
  interrupt("--kill-after 0");
  const ProcessResult result = diff();
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("no tensor is in both traces"));
}

TEST_F(Partial, CompleteTracesAreJudgedAsAlways) {
  ASSERT_EQ(ttrace(check(trainer(), trainer("--ranks 2"))).exit_code, 0);
  const ProcessResult result = diff();
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.out, file("run/report.txt"));
}

TEST_F(Partial, FileTornAnywhereIsReadOrNamedButNeverCrashes) {
  interrupt("--hidden 64 --kill-after 3");  // one tensor with a dataset of its own
  ASSERT_EQ(ttrace({"check",
                    "--reference",
                    trainer("--hidden 64"),
                    "--candidate",
                    trainer("--only candidate --exit-before 1"),
                    "-o",
                    "other"})
                .exit_code,
            2);
  const std::string torn = "run/candidate/step000000/rank00000.h5.tmp";
  const std::string whole = file(torn);
  ASSERT_GT(whole.size(), 100000U);
  const std::size_t step = whole.size() / 24;
  for (std::size_t size = 0; size < whole.size(); size += step) {
    std::ofstream(folder_ / torn, std::ios::binary) << whole.substr(0, size);
    const ProcessResult result = ttrace({"diff", "other/reference", "run/candidate", "--partial"});
    EXPECT_EQ(result.exit_code, 2) << size;
    EXPECT_THAT(result.out + result.err,
                AnyOf(HasSubstr("PARTIAL: "), HasSubstr("no tensor is in")))
        << size;
  }
}

TEST_F(Partial, BytesThatNeverReachedTheDiskAreNotCompared) {
  interrupt("--hidden 64 --kill-after 3");
  const std::string torn = "run/candidate/step000000/rank00000.h5.tmp";
  // After a power failure the file may have its length but zeros in place of data.
  std::string text = file(torn);
  const std::size_t first = 4096;
  const std::size_t count = 4 * 64 * 64 * sizeof(float);
  bool found = false;
  for (std::size_t at = first; at + count <= text.size() && !found; at += first) {
    found = text.compare(at, 4, std::string(4, '\0')) != 0;
    if (found) {
      text.replace(at, count, std::string(count, '\0'));
    }
  }
  ASSERT_TRUE(found);
  std::ofstream(folder_ / torn, std::ios::binary) << text;
  ASSERT_EQ(ttrace({"check",
                    "--reference",
                    trainer("--hidden 64"),
                    "--candidate",
                    trainer("--only candidate --exit-before 1"),
                    "-o",
                    "other"})
                .exit_code,
            2);
  const ProcessResult result = ttrace({"diff", "other/reference", "run/candidate", "--partial"});
  EXPECT_EQ(result.exit_code, 2) << result.out;
  EXPECT_THAT(result.out + result.err, Not(HasSubstr("DIVERGED")));
}

TEST_F(Partial, OnlyDiffReadsInterruptedTraces) {
  interrupt("--kill-after 3");
  EXPECT_EQ(ttrace({"ls", "run/candidate"}).exit_code, 2);
  const ProcessResult result = ttrace({"ls", "run/candidate", "--partial", "--details"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("unknown option '--partial'"));
}

}  // namespace
}  // namespace ttrace::testing
