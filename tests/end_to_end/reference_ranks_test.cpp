// Checks whose reference runs on several ranks itself.
#include "end_to_end/small_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <string>

namespace ttrace::testing {
namespace {

using ::testing::HasSubstr;

ProcessResult check(const SmallRun& run,
                    const std::string& name,
                    const std::string& reference,
                    const std::string& candidate) {
  return ttrace_program({"check",
                         "--reference",
                         run.candidate(reference),
                         "--candidate",
                         run.candidate(candidate),
                         "-o",
                         run.folder(name)});
}

TEST(ReferenceOfRanks, ATrustedLayoutTakesThePlaceOfASingleDevice) {
  const SmallRun run({}, "bf16");
  const ProcessResult result = check(run, "clean", "--tp 2", "--tp 2 --sp --pp 2");
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_THAT(result.out, HasSubstr("reference  2 ranks, kv 2, tp 2, bf16"));
  EXPECT_TRUE(std::filesystem::exists(run.folder("clean") + "/reference/noise/00005.h5"));
  EXPECT_FALSE(std::filesystem::exists(run.folder("clean") + "/reference/noise/00005"));
}

TEST(ReferenceOfRanks, ABugIsFoundWhereItIsAlthoughStagesCountOnTheirOwn) {
  const SmallRun run({}, "bf16");
  const ProcessResult result =
      check(run, "wrong", "--pp 2", "--tp 2 --sp --bug tp-forward-allreduce");
  EXPECT_EQ(result.exit_code, 1) << result.out << result.err;
  const nlohmann::json first = run.report("wrong").at("first_divergence");
  EXPECT_EQ(first.at("id"), "s0/m0/output/decoder.layers.1.mlp.linear_fc2/0");
  EXPECT_EQ(first.at("signature"), "missing_reduction");
}

}  // namespace
}  // namespace ttrace::testing
