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

const std::string kGate = std::string(TTRACE_SOURCE) + "/examples/ci_gate/";

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

  // The example's commands with the programs of this build and a smaller model.
  [[nodiscard]] std::string commands() const {
    const std::string text = read_text(kGate + "runs.txt");
    return std::regex_replace(std::regex_replace(text, std::regex("build/cpu/bin"), TTRACE_BIN),
                              std::regex("examples/tiny.yaml"),
                              folder_ / "small.yaml");
  }

  // The line of `commands()` that begins with `name`.
  [[nodiscard]] std::string line(const std::string& name) const {
    std::istringstream lines(commands());
    for (std::string text; std::getline(lines, text);) {
      if (text.starts_with(name + " ")) {
        return text;
      }
    }
    ADD_FAILURE() << "runs.txt has no line " << name;
    return "";
  }

  // `options`: of ttrace check.
  [[nodiscard]] ProcessResult gate(const std::string& runs,
                                   const std::string& output,
                                   const std::vector<std::string>& options = {}) const {
    std::ofstream(folder_ / "runs.txt") << runs;
    ProcessOptions call{
        .arguments = {kGate + "gate.sh", folder_ / "runs.txt", folder_ / output, folder_ / "store"},
        .environment = {{"TTRACE", std::string(TTRACE_BIN) + "/ttrace"},
                        {"OMP_NUM_THREADS", "1"},
                        {"GITHUB_STEP_SUMMARY", folder_ / "summary.md"}},
        .directory = TTRACE_SOURCE,
        .timeout = std::chrono::seconds(150)};
    call.arguments.insert(call.arguments.end(), options.begin(), options.end());
    return run_process(call);
  }

  [[nodiscard]] bool exists(const std::string& name) const {
    return std::filesystem::exists(folder_ / name);
  }

  TemporaryDirectory folder_;
};

pugi::xml_document junit(const std::string& file) {
  pugi::xml_document document;
  const auto result = document.load_file(file.c_str());
  EXPECT_TRUE(result) << file << ": " << result.description();
  return document;
}

TEST_F(CiGate, RightLayoutsPassAndABugIsNamedAgainstTheSameReference) {
  const ProcessResult clean = gate(commands(), "clean");
  ASSERT_EQ(clean.exit_code, 0) << clean.out << clean.err;
  EXPECT_THAT(clean.out, HasSubstr("making the reference"));
  EXPECT_THAT(read_text(folder_ / "summary.md"), HasSubstr("pp2-dp2      within bound\n"));
  for (const char* name : {"tp2-sp-dp2", "pp2-dp2", "cp2-zero"}) {
    const std::string file = folder_ / ("clean/junit/" + std::string(name) + ".xml");
    const auto report =
        nlohmann::json::parse(read_text(folder_ / ("clean/" + std::string(name) + "/report.json")));
    const pugi::xml_document document = junit(file);
    const pugi::xml_node root = document.child("testsuites");
    EXPECT_EQ(root.attribute("failures").as_int(-1), 0) << name;
    EXPECT_EQ(root.attribute("tests").as_ullong(), report["tensors"].size()) << name;
    EXPECT_THAT(read_text(folder_ / ("clean/" + std::string(name) + ".txt")),
                HasSubstr("WITHIN BOUND"));
  }

  const std::string bug = line("reference") + "\nbroken exit 3\n" + line("tp2-sp-dp2") +
                          " --bug tp-forward-allreduce\n";
  const ProcessResult wrong = gate(bug, "wrong");
  EXPECT_EQ(wrong.exit_code, 1) << wrong.out << wrong.err;  // although another one failed
  EXPECT_THAT(wrong.out, Not(HasSubstr("making the reference")));
  const auto report = nlohmann::json::parse(read_text(folder_ / "wrong/tp2-sp-dp2/report.json"));
  const auto first = report["first_divergence"]["id"].get<std::string>();
  EXPECT_EQ(first, "s0/m0/output/decoder.layers.1.mlp.linear_fc2/0");
  EXPECT_THAT(wrong.out,
              AllOf(HasSubstr("broken       COULD NOT BE COMPARED\n"),
                    HasSubstr("tp2-sp-dp2   DIVERGED at " + first + "\n")));
  EXPECT_FALSE(exists("wrong/junit/broken.xml"));
  const pugi::xml_document document = junit(folder_ / "wrong/junit/tp2-sp-dp2.xml");
  const pugi::xml_node failure = document.select_node("//failure").node();
  EXPECT_EQ(failure.parent().attribute("name").value(), first);
  EXPECT_EQ(failure.parent().attribute("classname").value(),
            std::string("decoder.layers.1.mlp.linear_fc2"));
  EXPECT_THAT(failure.attribute("message").value(),
              AllOf(HasSubstr("first divergence: "), HasSubstr("missing reduction")));

  EXPECT_EQ(gate(line("reference") + "\nbroken exit 3\n", "broken").exit_code, 2);
}

TEST_F(CiGate, UnreliableReferenceAndBadUsageAreToldApartFromADivergence) {
  const ProcessResult failed = gate("reference exit 3\n" + line("pp2-dp2") + "\n", "one");
  EXPECT_EQ(failed.exit_code, 2);
  EXPECT_THAT(failed.err, HasSubstr("the reference is not to be relied on"));
  EXPECT_FALSE(exists("store"));
  const ProcessResult again = gate(commands(), "one");
  EXPECT_EQ(again.exit_code, 2);
  EXPECT_THAT(again.err, HasSubstr("one exists; name a new folder"));
  EXPECT_THAT(gate(line("pp2-dp2") + "\n", "two").err,
              HasSubstr("has no line 'reference COMMAND'"));
}

// The files that the workflow names exist.
TEST(CiGateWorkflow, RunsTheScriptAndKeepsTheReports) {
  const YAML::Node workflow = YAML::LoadFile(kGate + "ttrace.yml");
  ASSERT_TRUE(workflow["on"]["pull_request"].IsDefined());
  const YAML::Node job = workflow["jobs"]["gate"];
  std::string command;
  std::string program;
  std::string artifact;
  for (const YAML::Node& step : job["steps"]) {
    const auto run = step["run"].as<std::string>("");
    if (run.find("gate.sh") != std::string::npos) {
      command = run;
      program = step["env"]["TTRACE"].as<std::string>();
    }
    if (step["uses"].as<std::string>("").starts_with("actions/upload-artifact@")) {
      artifact = step["with"]["path"].as<std::string>();
      EXPECT_EQ(step["if"].as<std::string>(), "${{ !cancelled() }}");  // a failed gate's, too
    }
  }
  std::istringstream words(command);
  std::string script;
  std::string runs;
  std::string output;
  words >> script >> runs >> output;
  const std::filesystem::path source = TTRACE_SOURCE;
  EXPECT_TRUE(std::filesystem::exists(source / script)) << script;
  EXPECT_TRUE(std::filesystem::exists(source / runs)) << runs;
  EXPECT_EQ(program, "build/cpu/bin/ttrace");
  EXPECT_THAT(artifact, HasSubstr(output + "/junit\n"));
}

}  // namespace
}  // namespace ttrace::testing
