#include "cli_fixture.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <string>

namespace ttrace::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class Same : public CliTest {
 protected:
  [[nodiscard]] ProcessResult same(const std::string& first,
                                   const std::string& second,
                                   const std::string& format = "text") const {
    return ttrace({"same", first, second, "-o", "run-" + format, "--format", format});
  }
};

TEST_F(Same, TwoRunsThatComputeTheSameBitsAreTheSame) {
  const ProcessResult result = same(trainer("--ranks 2"), trainer("--ranks 2"));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out,
              AllOf(StartsWith("SAME  "), HasSubstr("of 2 ranks are equal bit for bit")));
}

TEST_F(Same, TheRecordThatDifferedFirstIsNamedWithTheEqualOnesBeforeIt) {
  const ProcessResult result = same(trainer("--ranks 2"), trainer("--ranks 2 --differ"), "json");
  EXPECT_EQ(result.exit_code, 1) << result.err;
  const auto json = nlohmann::json::parse(result.out);
  EXPECT_EQ(json.at("verdict"), "differs");
  EXPECT_EQ(json.at("first").at("id"), "s0/m0/output/decoder.layers.0.mlp.linear_fc2/0");
  EXPECT_EQ(json.at("records"), 8);
  EXPECT_EQ(json.at("unequal").size(), 2U);
}

// A record that only the second run has was said to come behind every equal one.
TEST_F(Same, ARecordOfTheSecondRunAloneCountsWhatCameBeforeItThere) {
  const std::string plain = trainer("--ranks 2");
  const ProcessResult result = same(plain, trainer("--ranks 2 --route 0,1,2,3"), "json");
  EXPECT_EQ(result.exit_code, 1) << result.err;
  const auto json = nlohmann::json::parse(result.out);
  const auto routed = std::ranges::find_if(json.at("unequal"), [](const auto& record) {
    return record.at("id").template get<std::string>().find("routing") != std::string::npos;
  });
  ASSERT_NE(routed, json.at("unequal").end()) << result.out;
  EXPECT_EQ(routed->at("equal_before"), 3);  // of four
}

TEST_F(Same, StoredTracesAreComparedWithoutARun) {
  ASSERT_EQ(ttrace(check(trainer(), trainer("--ranks 2"))).exit_code, 0);
  const ProcessResult result = ttrace({"same", "run/candidate", "run/candidate"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_FALSE(std::filesystem::exists(folder_ / "runs"));
}

TEST_F(Same, OtherLayoutsCannotBeComparedBitForBit) {
  const ProcessResult result = same(trainer("--ranks 2"), trainer("--ranks 1"));
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, AllOf(HasSubstr("has 2 ranks"), HasSubstr("has 1 rank")));
}

TEST_F(Same, AProgramThatFailsIsNamedWithItsLog) {
  const ProcessResult result = same("echo out of paper; exit 3", trainer());
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, AllOf(HasSubstr("the first run pass failed"), HasSubstr("out of paper")));
}

}  // namespace
}  // namespace ttrace::testing
