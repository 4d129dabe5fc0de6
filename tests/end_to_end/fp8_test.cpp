// FP8 linears end to end: every recipe, on several layouts, against the reference.
#include "end_to_end/checks.h"
#include "support/derived_config.h"
#include "support/report_json.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <regex>
#include <string>
#include <utility>
#include <vector>

namespace ttrace::testing {
namespace {

using nlohmann::json;

// Names and options of megatron_mini. The first one has forced passes, which need the reference's
// command.
const std::vector<std::pair<std::string, std::string>> kLayouts = {
    {"tp2_sp_dp2", "--tp 2 --sp --dp 2"}, {"cp2", "--cp 2"}};

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

// Counts inputs, weights and gradients in their formats. The operands of a product follow from the
// candidate's own values, so the forced pass in its precision reproduces them bit for bit.
void expect_operands(const json& report, bool has_forced_passes) {
  for (const auto& tensor : report["tensors"]) {
    const std::string id = tensor["id"].get<std::string>();
    if (id.find("/operand/") == std::string::npos) {
      continue;
    }
    const json operators = testing::asked(tensor, "operator");
    EXPECT_EQ(operators.is_null(), !has_forced_passes) << id;
    if (has_forced_passes) {
      EXPECT_EQ(operators["terms"]["bit_equal"].get<double>(), 1.0) << id;
    }
    const std::string format = id.back() == '2' ? "e5m2" : "e4m3";
    EXPECT_EQ(tensor["codes"]["reference"]["format"], format) << id;
    EXPECT_EQ(tensor["codes"]["candidate"]["format"], format) << id;
  }
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
    EXPECT_EQ(count(report, "/operand/"), training.steps * 2 * 24);
    expect_operands(report, name == kLayouts.front().first);
    EXPECT_EQ(count(report, "/amax_history/"),
              GetParam() == "delayed" ? training.steps * 2 * 24 : 0);
    expect_equal_scales_of_equal_tensors(report);
  }
}

TEST(Fp8Bug, ExchangedFormatsAreExplainedWithTheCodesOfBothSides) {
  const TemporaryDirectory folder;
  const TrainingRun training{.config = folder / "fp8.yaml", .precision = "fp8", .steps = 1};
  write_derived_config(example("fp8"), {{"fp8.recipe", "current"}}, training.config);
  Checks checks(training);
  const ProcessResult result =
      checks.run("exchanged", "--bug fp8-formats-exchanged", {"--precision", "fp8"});
  EXPECT_EQ(result.exit_code, 1) << result.out << result.err;
  const std::string linear = "decoder.layers.1.mlp.linear_fc2/0";
  const json report = checks.report();
  EXPECT_EQ(report["first_divergence"]["id"], "s0/m0/scale/" + linear);
  const std::string cause = report["first_divergence"]["probable_cause"].get<std::string>();
  EXPECT_NE(cause.find("E5M2 codes: "), std::string::npos) << cause;
  EXPECT_NE(cause.find("in the reference, E4M3 codes: "), std::string::npos) << cause;
  const ProcessResult explained =
      ttrace_program({"explain", checks.folder(), "s0/m0/operand/" + linear});
  EXPECT_EQ(explained.exit_code, 1) << explained.err;
  EXPECT_NE(explained.out.find("its codes are E5M2, but E4M3 in the reference"), std::string::npos)
      << explained.out;
}

INSTANTIATE_TEST_SUITE_P(EndToEnd,
                         Fp8,
                         ::testing::Values("delayed", "current", "blockwise", "mxfp8"),
                         [](const auto& parameter) { return parameter.param; });

}  // namespace
}  // namespace ttrace::testing
