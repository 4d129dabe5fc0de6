// FP8 linears end to end: every recipe, on several layouts, against the reference.
#include "end_to_end/checks.h"
#include "support/derived_config.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <regex>
#include <string>
#include <utility>
#include <vector>

namespace ttrace::testing {
namespace {

using nlohmann::json;

// Names and options of megatron_mini.
const std::vector<std::pair<std::string, std::string>> kLayouts = {
    {"cp2", "--cp 2"}, {"tp2_sp_dp2", "--tp 2 --sp --dp 2"}};

class Fp8 : public ::testing::TestWithParam<std::string> {};

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

// examples/fp8.yaml with another recipe, in two steps where scales follow from past ones. Per step
// and micro-batch: 2 layers of 4 linears with 3 operands.
TEST_P(Fp8, CleanRunsRaiseNoAlarm) {
  const TemporaryDirectory folder;
  const TrainingRun training{
      .config = folder / "fp8.yaml", .precision = "fp8", .steps = GetParam() == "delayed" ? 2 : 1};
  write_derived_config(example("fp8"), {{"fp8.recipe", GetParam()}}, training.config);
  Checks checks(training);
  for (const auto& [name, layout] : kLayouts) {
    SCOPED_TRACE(name);
    const ProcessResult result = checks.run(name, layout, {"--precision", "fp8"});
    EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
    const json report = checks.report();
    EXPECT_EQ(report["verdict"], "clean");
    EXPECT_EQ(count(report, "/scale/"), training.steps * 2 * 24);
    EXPECT_EQ(count(report, "/amax_history/"),
              GetParam() == "delayed" ? training.steps * 2 * 24 : 0);
    expect_equal_scales_of_equal_tensors(report);
  }
}

INSTANTIATE_TEST_SUITE_P(EndToEnd,
                         Fp8,
                         ::testing::Values("delayed", "current", "blockwise", "mxfp8"),
                         [](const auto& parameter) { return parameter.param; });

}  // namespace
}  // namespace ttrace::testing
