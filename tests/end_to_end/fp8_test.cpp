// FP8 linears end to end: every recipe, on several layouts, against the reference.
#include "support/run_process.h"
#include "support/temporary_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <chrono>
#include <fstream>
#include <regex>
#include <string>
#include <vector>

namespace {

using nlohmann::json;
using ttrace::testing::ProcessOptions;
using ttrace::testing::ProcessResult;
using ttrace::testing::read_text;
using ttrace::testing::run_process;
using ttrace::testing::TemporaryDirectory;

const std::string kBin = TTRACE_BIN;
const std::string kSource = TTRACE_SOURCE;

struct Candidate {
  std::string name;
  int ranks;
  std::string flags;
};

const Candidate kDp2{"dp2", 2, "--dp 2"};
const Candidate kTp2{"tp2", 2, "--tp 2"};
const std::vector<Candidate> kCandidates = {kDp2,
                                            kTp2,
                                            {"tp2_sp", 2, "--tp 2 --sp"},
                                            {"cp2", 2, "--cp 2"},
                                            {"tp2_sp_dp2", 4, "--tp 2 --sp --dp 2"}};

// examples/fp8.yaml with another recipe, in two steps where scales follow from past ones.
class Fp8 : public testing::TestWithParam<std::string> {
 protected:
  Fp8() {
    std::string text = read_text(kSource + "/examples/fp8.yaml");
    text = std::regex_replace(text, std::regex("recipe: delayed"), "recipe: " + GetParam());
    text =
        std::regex_replace(text, std::regex("file: data"), "file: " + kSource + "/examples/data");
    std::ofstream(folder_ / "fp8.yaml") << text;
  }

  [[nodiscard]] ProcessResult check(const Candidate& candidate) {
    const std::string options =
        " --config " + (folder_ / "fp8.yaml") + " --steps " + std::to_string(steps_);
    const std::string reference = kBin + "/ttrace_reference" + options;
    report_ = folder_ / candidate.name;
    ProcessOptions run;
    run.arguments = {kBin + "/ttrace",
                     "check",
                     "--reference",
                     reference_.empty() ? reference : reference_,
                     "--candidate",
                     kSource + "/examples/megatron_mini/run_ranks " +
                         std::to_string(candidate.ranks) + " " + kBin + "/megatron_mini" + options +
                         " " + candidate.flags,
                     "--precision",
                     "fp8",
                     "--steps",
                     "0:" + std::to_string(steps_),
                     "-o",
                     report_};
    run.environment = {{"OMP_NUM_THREADS", "1"}};  // many small operators beside other tests
    run.timeout = std::chrono::seconds(120);
    ProcessResult result = run_process(run);
    if (reference_.empty() && result.exit_code != 2) {
      reference_ = report_ + "/reference";
    }
    return result;
  }

  [[nodiscard]] json report() const { return json::parse(read_text(report_ + "/report.json")); }
  [[nodiscard]] int steps() const { return steps_; }

 private:
  const int steps_ = GetParam() == "delayed" ? 2 : 1;
  TemporaryDirectory folder_;
  std::string reference_;
  std::string report_;
};

int count(const json& report, const std::string& pattern) {
  int found = 0;
  for (const auto& tensor : report["tensors"]) {
    found += std::regex_search(tensor["id"].get<std::string>(), std::regex(pattern)) ? 1 : 0;
  }
  return found;
}

// The weights that a training starts from and the first layer's input are the reference's in every
// bit.
void expect_equal_scales_of_equal_tensors(const json& report) {
  const std::regex pattern("^s0/m\\d/scale/(.*/1|decoder.layers.0.self_attention.linear_qkv/0)$");
  int found = 0;
  for (const auto& tensor : report["tensors"]) {
    if (std::regex_search(tensor["id"].get<std::string>(), pattern)) {
      ++found;
      EXPECT_EQ(tensor["error"].get<double>(), 0.0) << tensor["id"];
    }
  }
  EXPECT_EQ(found, 2 * 9);
}

// Per step and micro-batch: 2 layers of 4 linears with 3 operands.
TEST_P(Fp8, CleanRunsRaiseNoAlarm) {
  for (const auto& candidate : kCandidates) {
    const ProcessResult result = check(candidate);
    EXPECT_EQ(result.exit_code, 0) << candidate.name << "\n" << result.out << result.err;
    const json run = report();
    EXPECT_EQ(run["verdict"], "clean");
    EXPECT_EQ(count(run, "/scale/"), steps() * 2 * 24) << candidate.name;
    EXPECT_EQ(count(run, "/amax_history/"), GetParam() == "delayed" ? steps() * 2 * 24 : 0);
    SCOPED_TRACE(candidate.name);
    expect_equal_scales_of_equal_tensors(run);
  }
}

INSTANTIATE_TEST_SUITE_P(EndToEnd,
                         Fp8,
                         testing::Values("delayed", "current", "blockwise", "mxfp8"),
                         [](const auto& parameter) { return parameter.param; });

}  // namespace
