// --format of the commands that judge: what is printed and what is written.
#include "cli_fixture.h"

#include <nlohmann/json.hpp>

#include <filesystem>
#include <fstream>

namespace ttrace::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class Format : public CliTest {
 protected:
  void store_run(const std::string& candidate_switches) {
    ASSERT_NE(ttrace(check(trainer(), trainer(candidate_switches))).exit_code, 2);
  }
  [[nodiscard]] ProcessResult diff(std::vector<std::string> formats) const {
    std::vector<std::string> arguments{"diff", "run"};
    for (const std::string& format : formats) {
      arguments.insert(arguments.end(), {"--format", format});
    }
    return ttrace(arguments);
  }
  void expect_usage_error(const std::vector<std::string>& formats, const std::string& sentence) {
    const ProcessResult result = diff(formats);
    EXPECT_EQ(result.exit_code, 2) << sentence;
    EXPECT_EQ(result.out, "");
    EXPECT_THAT(result.err, AllOf(StartsWith("ttrace: error: "), HasSubstr(sentence)));
  }
};

TEST_F(Format, FilesAreWrittenBesideTheTextThatIsPrinted) {
  const ProcessResult result = ttrace(
      check(trainer(), trainer("--differ"), {"--details", "--format", "junit=run/junit.xml"}));
  EXPECT_EQ(result.exit_code, 1) << result.err;
  EXPECT_EQ(result.out, file("run/report.txt"));
  EXPECT_THAT(file("run/junit.xml"),
              AllOf(HasSubstr("<testsuite name=\"decoder.layers.0.mlp.linear_fc2\""),
                    HasSubstr("message=\"first divergence: ")));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "run/junit.xml.tmp"));
}

TEST_F(Format, EveryFormatCanBePrintedOrWritten) {
  store_run("--differ");
  const std::string text = diff({}).out;
  const std::string json = diff({"json"}).out;
  const std::string junit = diff({"junit"}).out;
  EXPECT_THAT(text, StartsWith("DIVERGED  "));
  EXPECT_EQ(nlohmann::json::parse(json).at("verdict"), "diverged");
  EXPECT_THAT(junit, StartsWith("<?xml "));
  EXPECT_THAT(diff({"jsonl"}).out, StartsWith("{\"type\":\"report\",\"schema\":2,"));
  EXPECT_THAT(diff({"markdown"}).out, StartsWith("## TTrace: DIVERGED\n"));
  EXPECT_EQ(nlohmann::json::parse(diff({"sarif"}).out).at("version"), "2.1.0");
  std::ofstream(folder_ / "b.xml") << "what an earlier run wrote";
  const ProcessResult result = diff({"text=a.txt", "json", "junit=b.xml", "json=c=d.json"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(result.out, json);
  EXPECT_EQ(file("a.txt"), file("run/report.txt")) << "a file has all details";
  EXPECT_EQ(file("b.xml"), junit);
  EXPECT_EQ(file("c=d.json"), json);
}

TEST_F(Format, WhatCannotBeDoneIsToldBeforeAnythingRuns) {
  store_run("");
  expect_usage_error(
      {"xml"},
      "--format is 'xml'; it must be one of text, html, json, jsonl, junit, markdown, sarif");
  expect_usage_error({"text", "junit"}, "--format text and --format junit would both be printed");
  expect_usage_error({"junit="}, "--format is 'junit=', but no file follows the =");
  expect_usage_error({"junit=a", "json=a"}, "--format names the file a twice");
  expect_usage_error({"junit=run"}, "--format needs a file, but run is a folder");
  expect_usage_error({"junit=none/a.xml"},
                     "cannot write none/a.xml for --format: No such file or directory; name a file "
                     "in a folder that exists and is writable");
  const ProcessResult result = ttrace({"check",
                                       "--reference",
                                       trainer(),
                                       "--candidate",
                                       trainer(),
                                       "-o",
                                       "other",
                                       "--format=junit=none/a.xml"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("cannot write none/a.xml"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "other/reference"));
}

}  // namespace
}  // namespace ttrace::testing
