// The golden and the dyadic pass of `ttrace check`, with the example programs.
#include "end_to_end/small_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <map>
#include <regex>
#include <string>
#include <utility>
#include <vector>

namespace ttrace::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

std::size_t count_tensors(const json& report, const std::string& pattern, const std::string& tier) {
  const std::regex id(pattern);
  return static_cast<std::size_t>(
      std::count_if(report["tensors"].begin(), report["tensors"].end(), [&](const json& tensor) {
        return tensor["tier"] == tier && std::regex_search(tensor["id"].get<std::string>(), id);
      }));
}

// Both find nothing in a clean run.
void expect_clean_golden(const std::string& precision, const std::string& layout) {
  SCOPED_TRACE(precision + " " + layout);
  const SmallRun run({}, precision);
  const ProcessResult result = run.check("clean", layout, {"--golden", "--no-forced"});
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_GT(run.report("clean")["counts"]["golden"].get<int>(), 80);
}

TEST(GoldenPass, CleanRunsAreAsInaccurateAsTheReference) {
  expect_clean_golden("bf16", "--tp 2 --sp");
  expect_clean_golden("fp8", "--dp 2");
}

// Its parameters and records are F32, where the reference's are BF16: its own manifest says so, and
// no bound that is as wide as BF16 needs it finds anything.
TEST(GoldenPass, CandidateThatRanInF32IsTooAccurateForBf16) {
  const SmallRun reference({}, "bf16");
  const std::string candidate = std::regex_replace(
      reference.candidate("--tp 2"), std::regex("--precision bf16"), "--precision f32");
  const std::vector<std::string> arguments = {"check",
                                              "--reference",
                                              reference.reference(),
                                              "--candidate",
                                              candidate,
                                              "--noise",
                                              "0",
                                              "--no-forced",
                                              "--golden",
                                              "-o",
                                              reference.folder("wide")};
  const ProcessResult result = ttrace_program(arguments);
  EXPECT_EQ(result.exit_code, 1) << result.out << result.err;
  const json first = reference.report("wide")["first_divergence"];
  EXPECT_EQ(first["tier"], "golden") << first;
  EXPECT_EQ(first["symptom"], "too_accurate");
  EXPECT_THAT(first["cause"], HasSubstr("computes in higher precision than bf16"));
}

// The linears' outputs are BF16 on both sides; that scales are missing is looked away from.
TEST(GoldenPass, LinearsThatQuietlyRanInBf16AreTooAccurateForFp8) {
  const SmallRun reference({}, "fp8");
  const std::string candidate = std::regex_replace(
      reference.candidate("--dp 2"), std::regex("--precision fp8"), "--precision bf16");
  const std::vector<std::string> arguments = {"check",
                                              "--reference",
                                              reference.reference(),
                                              "--candidate",
                                              candidate,
                                              "--noise",
                                              "0",
                                              "--no-forced",
                                              "--golden",
                                              "--kinds",
                                              "output,grad_output,param_grad",
                                              "-o",
                                              reference.folder("bf16")};
  const ProcessResult result = ttrace_program(arguments);
  EXPECT_EQ(result.exit_code, 1) << result.out << result.err;
  const json first = reference.report("bf16")["first_divergence"];
  EXPECT_EQ(first["symptom"], "too_accurate") << first;
  EXPECT_THAT(first["cause"], HasSubstr("is FP8 active here?"));
  const ProcessResult explained =
      ttrace_program({"explain", reference.folder("bf16"), first["id"].get<std::string>()});
  EXPECT_EQ(explained.exit_code, 1);
  EXPECT_THAT(explained.out, HasSubstr("golden pass: ||c - g|| / ||r - g|| = "));
}

// In BF16 no tier sees such a small error.
TEST(LogicPass, FactorOfABillionthIsFoundWhereBothProgramsComputeInFp64) {
  const SmallRun run({}, "bf16");
  const ProcessResult result = run.check(
      "scaled", "--tp 2 --mutant operator_scale --mutant-size 1e-9", {"--precision", "f64"});
  EXPECT_EQ(result.exit_code, 1) << result.out << result.err;
  const json first = run.report("scaled")["first_divergence"];
  EXPECT_EQ(first["id"], "s0/m0/output/decoder.layers.0.mlp.linear_fc2/0") << first;
}

// Name, changes of the configuration, layout.
struct DyadicCase {
  std::string name;
  ConfigChanges changes;
  std::string layout;
};

class DyadicRuns : public ::testing::TestWithParam<DyadicCase> {};

TEST_P(DyadicRuns, CleanLayoutsAreEqualInEveryLinearAndGradient) {
  const SmallRun run(GetParam().changes, "f32");
  const ProcessResult result = run.check("clean", GetParam().layout, {"--dyadic"});
  ASSERT_EQ(result.exit_code, 0) << result.out << result.err;
  const json report = run.report("clean");
  EXPECT_GE(report["counts"]["must_be_equal"].get<int>(), 100);
  EXPECT_GE(count_tensors(report, "/output/.*linear_(qkv|proj|fc1|fc2)/", "T3"), 8U);
  EXPECT_GE(count_tensors(report, "/main_grad/", "T3"), 8U);
}

INSTANTIATE_TEST_SUITE_P(EndToEnd,
                         DyadicRuns,
                         ::testing::Values(DyadicCase{"tp2_sp", {}, "--tp 2 --sp"},
                                           DyadicCase{"dp2", {}, "--dp 2"},
                                           DyadicCase{"pp2", {}, "--pp 2"},
                                           DyadicCase{"cp2", {}, "--cp 2"},
                                           DyadicCase{
                                               "experts",
                                               {{"model.experts", "4"}, {"model.top_k", "2"}},
                                               "--dp 2 --ep 2"}),
                         [](const auto& parameter) { return parameter.param.name; });

// A tenth of what F32 noise would let pass.
TEST(DyadicPass, FactorOfAMillionthIsFoundAtItsOperator) {
  const SmallRun run({}, "f32");
  const ProcessResult result =
      run.check("scaled", "--tp 2 --mutant operator_scale --mutant-size 1e-6", {"--dyadic"});
  EXPECT_EQ(result.exit_code, 1) << result.out << result.err;
  const json first = run.report("scaled")["first_divergence"];
  EXPECT_EQ(first["id"], "s0/m0/output/decoder.layers.0.mlp.linear_fc2/0") << first;
  EXPECT_EQ(first["tier"], "T3");
  EXPECT_EQ(first["symptom"], "not_exact");
}

// Both programs say BF16 and follow the precision that the pass asks for.
TEST(DyadicPass, MissingAllReduceIsFoundAtItsOperator) {
  const SmallRun run({}, "bf16");
  const ProcessResult result =
      run.check("missing", "--tp 2 --bug tp-forward-allreduce", {"--dyadic"});
  EXPECT_EQ(result.exit_code, 1) << result.out << result.err;
  const json first = run.report("missing")["first_divergence"];
  EXPECT_THAT(first["id"], HasSubstr("decoder.layers.1.mlp.linear_fc2")) << first;
}

}  // namespace
}  // namespace ttrace::testing
