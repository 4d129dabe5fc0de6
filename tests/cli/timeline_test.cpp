#include "trace_fixture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <string>

namespace ttrace::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

class TimelineCliTest : public TraceCliTest {};

TEST_F(TimelineCliTest, WritesATimelineOfTheOrderWhereATraceHasNoTimes) {
  write();
  const ProcessResult result = ttrace({"timeline", "candidate", "-o", "timeline.json"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.err,
              StartsWith("ttrace: candidate has no times, because an earlier version wrote it"));
  EXPECT_EQ(result.out,
            "2 ranks, 2 slices and 6 records written to timeline.json; open it at "
            "https://ui.perfetto.dev\n");
  const auto json = nlohmann::json::parse(file("timeline.json"));
  EXPECT_EQ(json.at("otherData").at("candidate times"), "order of records");
  EXPECT_EQ(json.at("traceEvents").at(0).at("args").at("name"),
            "candidate, order only, rank 0 (tp 0)");
}

TEST_F(TimelineCliTest, SaysNothingOfTimesThatAreThere) {
  candidate_.began(0, 1000).began(1, 1000);
  write();
  const ProcessResult result = ttrace({"timeline", "candidate", "-o", "timeline.json"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.err, IsEmpty());
  EXPECT_EQ(nlohmann::json::parse(file("timeline.json")).at("otherData").at("candidate times"),
            "measured");
}

TEST_F(TimelineCliTest, PaintsTheReportThatItIsGiven) {
  write();
  const ProcessResult diff =
      ttrace({"diff", "reference", "candidate", "--format=json=report.json"});
  ASSERT_EQ(diff.exit_code, 0) << diff.err;
  const ProcessResult result =
      ttrace({"timeline", "candidate", "-o", "timeline.json", "--report", "report.json"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(file("timeline.json"), HasSubstr(R"("verdict":"within")"));
}

TEST_F(TimelineCliTest, ShowsTheStepsAndRanksThatAreAskedFor) {
  write();
  const ProcessResult all = ttrace({"timeline", "candidate", "-o", "all.json"});
  const ProcessResult one =
      ttrace({"timeline", "candidate", "-o", "one.json", "--steps", "0:1", "--ranks", "1-7"});
  EXPECT_EQ(one.exit_code, 0) << one.err;
  EXPECT_THAT(all.out, StartsWith("2 ranks, "));
  EXPECT_THAT(one.out, StartsWith("1 rank, "));
  EXPECT_THAT(file("one.json"), HasSubstr("rank 1 (tp 1)"));
  EXPECT_THAT(file("one.json"), Not(HasSubstr("rank 0 (tp 0)")));
}

TEST_F(TimelineCliTest, RefusesWhatItCannotDo) {
  write();
  const auto refused = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "timeline");
    const ProcessResult result = ttrace(std::move(arguments));
    EXPECT_EQ(result.exit_code, 2);
    return result.err;
  };
  EXPECT_THAT(refused({"candidate"}), HasSubstr("pass -o FILE.json"));
  EXPECT_THAT(refused({"-o", "x.json"}), HasSubstr("timeline needs one folder, but 0 words are"));
  EXPECT_THAT(refused({"nowhere", "-o", "x.json"}), HasSubstr("there is no folder nowhere"));
  EXPECT_THAT(refused({"candidate", "-o", "x.json", "--report", "candidate/manifest.json"}),
              HasSubstr("candidate/manifest.json: this is no report of ttrace"));
  for (const char* const range : {"--steps=1", "--ranks=2"}) {
    EXPECT_THAT(refused({"candidate", "-o", "x.json", range}),
                HasSubstr("--steps and --ranks leave nothing of candidate to show"));
  }
  EXPECT_FALSE(std::filesystem::exists(folder_ / "x.json"));
  EXPECT_THAT(refused({"candidate", "-o", "candidate/manifest.json"}), HasSubstr("exists"));
}

}  // namespace
}  // namespace ttrace::testing
