#include "analysis/diff.h"
#include "analysis/reports/report_writers.h"
#include "analysis/trace_builder.h"
#include "support/temporary_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <set>
#include <sstream>
#include <string>

namespace ttrace {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::scaled;
using ::testing::SizeIs;
using ::testing::StartsWith;
using testing::TemporaryDirectory;
using testing::TraceBuilder;
using testing::wavy;

class SarifReport : public ::testing::Test {
 protected:
  SarifReport() {
    candidate_.code(0, CodeRole::kSource, "a", "src/my model.py:88 (Attention)")
        .code(0, CodeRole::kSource, "b", "/opt/lib/layers.py:7 (Linear)");
  }
  void add(const std::string& id, double factor = 1.0) {
    reference_.add(0, {id, wavy(4), ElementType::kF32});
    candidate_.add_everywhere({id, factor == 1.0 ? wavy(4) : scaled(wavy(4), factor)});
  }
  Report run(const DiffOptions& options = {}) {
    return diff(reference_.write(), candidate_.write(), options);
  }
  static nlohmann::json sarif(const Report& report) {
    std::ostringstream out;
    write_sarif(out, report);
    return nlohmann::json::parse(out.str()).at("runs").at(0);
  }
  static nlohmann::json file_of(const nlohmann::json& result) {
    return result.at("locations").at(0).at("physicalLocation").at("artifactLocation");
  }

  TemporaryDirectory directory_;
  TraceBuilder reference_{directory_ / "reference", "reference"};
  TraceBuilder candidate_{directory_ / "candidate", "candidate", 2};
};

TEST_F(SarifReport, TheFirstDivergenceIsAResultAtTheLineOfItsModule) {
  add("s0/m0/output/a/0", 3.0);
  const nlohmann::json result = sarif(run()).at("results").at(0);
  EXPECT_EQ(result.at("level"), "error");
  EXPECT_EQ(file_of(result),
            (nlohmann::json{{"uri", "src/my%20model.py"}, {"uriBaseId", "SRCROOT"}}));
  const auto& location = result.at("locations").at(0);
  EXPECT_EQ(location.at("physicalLocation").at("region").at("startLine"), 88);
  EXPECT_EQ(location.at("logicalLocations").at(0).at("fullyQualifiedName"), "a");
  EXPECT_THAT(result.at("message").at("text").get<std::string>(),
              AllOf(StartsWith("first divergence: "), HasSubstr("\nid: s0/m0/output/a/0\n")));
}

TEST_F(SarifReport, AFileOutsideOfTheProjectHasItsWholePath) {
  add("s0/m0/output/b/0", 3.0);
  EXPECT_EQ(file_of(sarif(run()).at("results").at(0)),
            (nlohmann::json{{"uri", "file:///opt/lib/layers.py"}}));
}

TEST_F(SarifReport, AResultWithoutAKnownLineNamesTheModuleAlone) {
  add("s0/m0/output/c/0", 3.0);
  const nlohmann::json location = sarif(run()).at("results").at(0).at("locations").at(0);
  EXPECT_FALSE(location.contains("physicalLocation"));
  EXPECT_EQ(location.at("logicalLocations").at(0).at("fullyQualifiedName"), "c");
}

TEST_F(SarifReport, TheOperatorThatAZoomNamedComesBeforeItsModule) {
  add("s0/m0/output/a/0", 3.0);
  Report report = run();
  report.zoom.emplace();
  report.zoom->first = NamedOperator{"aten::mm", "a", "src/rope.py:12", false};
  const nlohmann::json result = sarif(report).at("results").at(0);
  EXPECT_EQ(file_of(result).at("uri"), "src/rope.py");
  EXPECT_EQ(
      result.at("relatedLocations").at(0).at("physicalLocation").at("artifactLocation").at("uri"),
      "src/my%20model.py");
}

TEST_F(SarifReport, ACleanRunHasNoResultAndWasSuccessful) {
  add("s0/m0/output/a/0");
  const nlohmann::json run_json = sarif(run());
  EXPECT_THAT(run_json.at("results"), IsEmpty());
  EXPECT_EQ(run_json.at("invocations").at(0).at("executionSuccessful"), true);
}

TEST_F(SarifReport, AVerdictOnAPartIsNoSuccess) {
  add("s0/m0/output/a/0");
  Report report = run();
  report.lacking = {"step 0 of the candidate was interrupted"};
  const nlohmann::json invocation = sarif(report).at("invocations").at(0);
  EXPECT_EQ(invocation.at("executionSuccessful"), false);
  EXPECT_THAT(invocation.at("toolExecutionNotifications"), SizeIs(1));
}

TEST_F(SarifReport, EverySymptomHasARule) {
  add("s0/m0/output/a/0");
  std::set<std::string> rules;
  const nlohmann::json run_json = sarif(run());
  for (const auto& rule : run_json.at("tool").at("driver").at("rules")) {
    EXPECT_TRUE(rules.insert(rule.at("id")).second) << rule;
  }
  for (int number = 1; number <= static_cast<int>(Symptom::kTooCoarse); ++number) {
    EXPECT_TRUE(rules.contains(std::string(name_of(static_cast<Symptom>(number))))) << number;
  }
}

}  // namespace
}  // namespace ttrace
