#include "cli_fixture.h"

#include <nlohmann/json.hpp>

namespace ttrace::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

constexpr auto kWrong = "s0/m0/output/decoder.layers.0.mlp.linear_fc2/0";
constexpr auto kRight = "s0/m0/output/decoder.layers.0.mlp.linear_fc1/0";

// A run whose second output is 10 % too large.
class ExplainCommand : public CliTest {
 protected:
  void SetUp() override {
    ASSERT_EQ(ttrace(check(trainer(), trainer("--ranks 2 --differ"))).exit_code, 1);
  }
};

TEST_F(ExplainCommand, FindingOfARunIsExplainedWithItsOperators) {
  const ProcessResult result = ttrace({"explain", "run", kWrong});
  EXPECT_EQ(result.exit_code, 1) << result.err;
  EXPECT_THAT(result.out,
              AllOf(StartsWith(std::string(kWrong) + "\nDIVERGED, the first divergence: "),
                    HasSubstr("\n  *  T1 its own operators, R "),
                    HasSubstr("candidate = 1.100 x reference"),
                    HasSubstr("\nto do: "),
                    HasSubstr(kRight)));
  EXPECT_THAT(result.err, IsEmpty());
}

TEST_F(ExplainCommand, TensorWithinItsBoundEndsWithZero) {
  const ProcessResult result = ttrace({"explain", "run", kRight});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("\nwithin bound: all elements are equal\n"));
}

TEST_F(ExplainCommand, TwoTracesAreJudgedWithoutForcedPasses) {
  const ProcessResult result = ttrace({"explain", "run/reference", "run/candidate", kWrong});
  EXPECT_EQ(result.exit_code, 1) << result.err;
  EXPECT_THAT(result.out, HasSubstr("\n  *  T2 the whole tensor "));
}

TEST_F(ExplainCommand, JsonHasWhatDiffSaysOfTheTensor) {
  const ProcessResult result = ttrace({"explain", "run", kWrong, "--format", "json"});
  EXPECT_EQ(result.exit_code, 1) << result.err;
  const auto found = nlohmann::json::parse(result.out);
  EXPECT_EQ(found["id"], kWrong);
  EXPECT_EQ(found["checks"][1]["rules"], true);
  const auto report = nlohmann::json::parse(file("run/report.json"));
  EXPECT_EQ(found["error"], report["first_divergence"]["error"]);
}

TEST_F(ExplainCommand, ToleranceDecidesAsInDiff) {
  EXPECT_EQ(ttrace({"explain", "run", kWrong, "--rtol", "0.2"}).exit_code, 0);
}

TEST_F(ExplainCommand, UnknownIdNamesTheNearest) {
  const ProcessResult result =
      ttrace({"explain", "run", "s0/m0/output/decoder.layers.0.mlp.linear_fc3/0"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.out, IsEmpty());
  EXPECT_THAT(result.err,
              AllOf(StartsWith("ttrace: error: there is no tensor "
                               "'s0/m0/output/decoder.layers.0.mlp.linear_fc3/0' in run; the "
                               "nearest are "),
                    HasSubstr(kWrong)));
}

// Symptom: a report names `ttrace explain run` as the next command, which ended in bad usage.
TEST_F(ExplainCommand, WithoutAnIdTheFirstDivergenceIsExplained) {
  const ProcessResult result = ttrace({"explain", "run"});
  EXPECT_EQ(result.exit_code, 1) << result.err;
  EXPECT_THAT(result.out, StartsWith(std::string(kWrong) + "\nDIVERGED, the first divergence: "));
}

TEST_F(ExplainCommand, ARunWithoutADivergenceNeedsAnId) {
  std::vector<std::string> arguments = check(trainer(), trainer("--ranks 2"));
  arguments.back() = "clean";
  ASSERT_EQ(ttrace(arguments).exit_code, 0);
  const ProcessResult result = ttrace({"explain", "clean"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("clean has no first divergence to explain; name a tensor"));
}

TEST_F(ExplainCommand, NoWordsAreBadUsage) {
  const ProcessResult result = ttrace({"explain"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("explain needs a folder made by ttrace check"));
}

}  // namespace
}  // namespace ttrace::testing
