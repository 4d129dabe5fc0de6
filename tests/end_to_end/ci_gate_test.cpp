// examples/ci_gate as a CI server runs it.
#include "end_to_end/checks.h"
#include "support/derived_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <yaml-cpp/yaml.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <pugixml.hpp>
#include <regex>
#include <sstream>
#include <string>

namespace ttrace::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const std::string kExample = std::string(TTRACE_SOURCE) + "/examples/ci_gate/";

class CiGate : public ::testing::Test {
 protected:
  CiGate() {
    write_derived_config(example("tiny"),
                         {{"model.hidden", "32"},
                          {"model.heads", "4"},
                          {"model.query_groups", "2"},
                          {"model.ffn", "32"},
                          {"model.sequence", "16"},
                          {"data.micro_batch_size", "2"}},
                         folder_ / "small.yaml");
  }

  // The example's file with the programs of this build and a smaller model.
  [[nodiscard]] std::string gate_file() const {
    const std::string text = std::regex_replace(
        read_text(kExample + "gate.yaml"), std::regex("build/cpu/bin"), TTRACE_BIN);
    return std::regex_replace(
        std::regex_replace(text, std::regex("examples/tiny.yaml"), folder_ / "small.yaml"),
        std::regex("store: .*"),
        "store: " + (folder_ / "store"));
  }

  [[nodiscard]] ProcessResult gate(const std::string& text, const std::string& output) const {
    std::ofstream(folder_ / "gate.yaml") << text;
    return run_process(
        {.arguments = {std::string(TTRACE_BIN) + "/ttrace",
                       "gate",
                       folder_ / "gate.yaml",
                       "-o",
                       folder_ / output},
         .environment = {{"OMP_NUM_THREADS", "1"}, {"GITHUB_STEP_SUMMARY", folder_ / "summary.md"}},
         .directory = TTRACE_SOURCE});
  }

  TemporaryDirectory folder_;
};

pugi::xml_document junit(const std::string& file) {
  pugi::xml_document document;
  const auto result = document.load_file(file.c_str());
  EXPECT_TRUE(result) << file << ": " << result.description();
  return document;
}

// A pull request as the gate sees it: first a right change, then one with a bug, then one that
// changes what the reference is made from.
TEST_F(CiGate, RightLayoutsPassAndABugIsNamedWithItsLine) {
  const ProcessResult clean = gate(gate_file(), "clean");
  ASSERT_EQ(clean.exit_code, 0) << clean.out << clean.err;
  EXPECT_THAT(clean.out, HasSubstr("reference tiny: made in"));
  EXPECT_THAT(read_text(folder_ / "summary.md"), HasSubstr("all of 3 layouts within bound"));
  for (const char* name : {"tp2-sp-dp2", "pp2-dp2", "cp2-zero"}) {
    const auto report =
        nlohmann::json::parse(read_text(folder_ / ("clean/" + std::string(name) + "/report.json")));
    const pugi::xml_document document =
        junit(folder_ / ("clean/junit/" + std::string(name) + ".xml"));
    const pugi::xml_node root = document.child("testsuites");
    EXPECT_EQ(root.attribute("failures").as_int(-1), 0) << name;
    EXPECT_EQ(root.attribute("tests").as_ullong(), report["tensors"].size()) << name;
  }

  const ProcessResult wrong =
      gate(std::regex_replace(
               gate_file(), std::regex("--sp --dp 2"), "--sp --dp 2 --bug tp-forward-allreduce"),
           "wrong");
  EXPECT_EQ(wrong.exit_code, 1) << wrong.out << wrong.err;
  EXPECT_THAT(wrong.out, Not(HasSubstr("made in")));
  const auto summary = nlohmann::json::parse(read_text(folder_ / "wrong/summary.json"));
  const nlohmann::json& layout = summary["layouts"][0];
  EXPECT_EQ(layout["first_divergence"], "s0/m0/output/decoder.layers.1.mlp.linear_fc2/0");
  EXPECT_THAT(layout["probable_cause"].get<std::string>(), HasSubstr("sum over tp"));
  EXPECT_THAT(layout["source"].get<std::string>(), HasSubstr(".cpp:"));
  EXPECT_EQ(summary["layouts"][1]["outcome"], "within bound");
  const pugi::xml_document document = junit(folder_ / "wrong/junit/tp2-sp-dp2.xml");
  const pugi::xml_node failure = document.select_node("//failure").node();
  EXPECT_THAT(failure.attribute("message").value(),
              AllOf(HasSubstr("first divergence: "), HasSubstr("missing reduction")));

  std::ofstream(folder_ / "small.yaml", std::ios::app) << "# another line\n";
  const ProcessResult stale = gate(gate_file(), "stale");
  EXPECT_EQ(stale.exit_code, 2);
  EXPECT_TRUE(stale.out.starts_with("the stored reference tiny is stale: these files changed: "))
      << stale.out;
}

// The files that a workflow's command names exist, and what it keeps is what the gate writes.
void expect_gate_command(const std::string& command) {
  std::istringstream words(command);
  std::string program;
  std::string verb;
  std::string file;
  std::string option;
  std::string output;
  words >> program >> verb >> file >> option >> output;
  EXPECT_EQ(program + " " + verb, "build/cpu/bin/ttrace gate");
  EXPECT_TRUE(std::filesystem::exists(std::filesystem::path(TTRACE_SOURCE) / file)) << file;
  EXPECT_EQ(option + " " + output, "-o ttrace-gate");
}

TEST(CiGateWorkflow, OfGithubRunsTheGateAndKeepsTheReports) {
  const YAML::Node workflow = YAML::LoadFile(kExample + "github.yml");
  ASSERT_TRUE(workflow["on"]["pull_request"].IsDefined());
  std::string command;
  std::string artifact;
  for (const YAML::Node& step : workflow["jobs"]["gate"]["steps"]) {
    const auto run = step["run"].as<std::string>("");
    command = run.find("ttrace gate") != std::string::npos ? run : command;
    const auto uses = step["uses"].as<std::string>("");
    if (uses.starts_with("actions/upload-artifact@")) {
      artifact = step["with"]["path"].as<std::string>();
      EXPECT_EQ(step["if"].as<std::string>(), "${{ !cancelled() }}");  // a failed gate's, too
    } else if (uses.starts_with("actions/cache/save@")) {
      EXPECT_EQ(step["if"].as<std::string>(), "${{ github.event_name == 'push' }}");
    }
  }
  expect_gate_command(command);
  EXPECT_THAT(artifact, HasSubstr("ttrace-gate/junit\n"));
}

TEST(CiGateWorkflow, OfGitlabRunsTheGateAndKeepsTheReports) {
  const YAML::Node job = YAML::LoadFile(kExample + "gitlab.yml")["ttrace"];
  const YAML::Node script = job["script"];
  expect_gate_command(script[script.size() - 1].as<std::string>());
  EXPECT_EQ(job["artifacts"]["reports"]["junit"].as<std::string>(), "ttrace-gate/junit/*.xml");
  EXPECT_EQ(job["artifacts"]["when"].as<std::string>(), "always");
}

}  // namespace
}  // namespace ttrace::testing
