#include "analysis/diff.h"
#include "analysis/golden_wording.h"
#include "analysis/reports/report_writers.h"
#include "analysis/trace_builder.h"
#include "support/report_json.h"
#include "support/temporary_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <limits>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

namespace ttrace {
namespace {

using testing::asked;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::noise_row;
using ::testing::Not;
using testing::scaled;
using ::testing::StartsWith;
using testing::TemporaryDirectory;
using testing::Tensor;
using testing::TraceBuilder;
using testing::wavy;

class ReportTest : public ::testing::Test {
 protected:
  Report run(int threads = 0) {
    const Trace reference = reference_.write();
    if (!noise_.empty()) {
      testing::write_noise_passes(directory_ / "reference", noise_);
    }
    DiffOptions options;
    options.threads = threads;
    return diff(reference, candidate_.write(), options);
  }
  // The text without the name of the temporary directory.
  std::string text(const Report& report, const TextOptions& options = {}) const {
    std::ostringstream out;
    write_text(out, report, options);
    std::string result = out.str();
    for (std::size_t at = result.find(directory_.path()); at != std::string::npos;
         at = result.find(directory_.path())) {
      result.replace(at, directory_.path().size(), "runs");
    }
    return result;
  }
  static std::string json_text(const Report& report) {
    std::ostringstream out;
    write_json(out, report);
    return out.str();
  }
  // Three outputs, a start parameter and a bias gradient; the last two outputs halved in the
  // candidate where asked for.
  void build_small_model(double factor) {
    for (const char* id : {"s0/param/fc.weight/0",
                           "s0/m0/output/a/0",
                           "s0/m0/output/b/0",
                           "s0/m0/output/c/0",
                           "s0/main_grad/fc.bias/0"}) {
      const std::string name = id;
      const bool halved = name == "s0/m0/output/b/0" || name == "s0/m0/output/c/0";
      reference_.add(0, {name, wavy(4), ElementType::kF32});
      candidate_.add_everywhere({name, halved ? scaled(wavy(4), factor) : wavy(4)});
      if (name != "s0/param/fc.weight/0") {
        noise_.push_back(noise_row(name, 0.0078125, 0.0078125));
      }
    }
  }

  TemporaryDirectory directory_;
  TraceBuilder reference_{directory_ / "reference", "reference"};
  TraceBuilder candidate_{directory_ / "candidate", "candidate", 2};
  std::vector<NoiseRow> noise_;
};

TEST_F(ReportTest, TextOfACleanRun) {
  build_small_model(1.0009765625);
  EXPECT_WORDING(text(run()));
}

TEST_F(ReportTest, DetailsSayHowFarNoiseReached) {
  build_small_model(1.0009765625);
  for (NoiseRow& row : noise_) {
    row.covered = true;
  }
  noise_[0].sum_squared = noise_[1].sum_squared = 0.0;
  noise_[0].max_abs = noise_[1].max_abs = 0.0;
  noise_[1].covered = false;
  const Report report = run();
  EXPECT_THAT(
      text(report, {.details = true}),
      HasSubstr(
          "\n  noise      noise reached 2 of 4 tensors; 1 that no pass moved must be equal; 1 (1 "
          "output) has a class default, because code that torch does not dispatch made it\n  "
          "counts     tensors 5, judged 5, "));
  std::ostringstream out;
  write_json(out, report);
  const auto coverage = nlohmann::json::parse(out.str()).at("noise_coverage");
  EXPECT_EQ(coverage.at("reached"), 2);
  EXPECT_EQ(coverage.at("untouched"), 1);
  EXPECT_EQ(coverage.at("untouched_by_kind").at("output"), 1);
}

TEST_F(ReportTest, WithoutWordOfCoverageTheReportHasNoneEither) {
  build_small_model(1.0009765625);
  EXPECT_THAT(text(run(), {.details = true}), Not(HasSubstr("noise reached")));
}

TEST_F(ReportTest, TextOfADivergedRun) {
  build_small_model(0.5);
  candidate_.manifest.versions["ttrace"] = "0.2.0";
  candidate_.note(1, "the gradient of fc.weight never arrived");
  const Report report = run();
  EXPECT_WORDING(text(report));
  EXPECT_WORDING(text(report, {.details = true, .max_rows = 1}));
}

TEST_F(ReportTest, NamesTheCommandsThatLookFurther) {
  build_small_model(0.5);
  EXPECT_THAT(text(run(), {.run = "runs/1"}), HasSubstr(R"(
  next       ttrace explain runs/1  # the arithmetic of this verdict
             ttrace zoom runs/1  # the operator and its line
             ttrace diff runs/1 --details  # all that is wrong
)"));
}

TEST_F(ReportTest, LinesEndWhereTheTerminalDoes) {
  build_small_model(0.5);
  const std::string narrow = text(run(), {.width = 60});
  EXPECT_THAT(narrow, HasSubstr(R"(
  to do      check the forward of b; the forward record
             before it, s0/m0/output/a/0, is within bound
)"));
  std::istringstream lines(narrow);
  for (std::string line; std::getline(lines, line);) {
    EXPECT_LE(line.size(), 60U) << line;
  }
}

TEST_F(ReportTest, FactsStandInTheJsonInTheOrderOfReading) {
  build_small_model(0.5);
  const auto facts = nlohmann::json::parse(json_text(run()))["first_divergence"]["facts"];
  std::vector<std::string> answer;
  for (const auto& fact : facts) {
    if (fact["depth"] == "answer") {
      answer.push_back(fact["key"]);
    }
  }
  EXPECT_THAT(answer, ElementsAre("where", "why", "cause", "to_do"));
  const auto size =
      std::ranges::find_if(facts, [](const auto& fact) { return fact["key"] == "size"; });
  ASSERT_NE(size, facts.end());
  EXPECT_EQ((*size)["number"], 0.5);
}

TEST_F(ReportTest, SaysWhatTheVerdictDoesNotCover) {
  build_small_model(1.0009765625);
  candidate_.not_seen(0, NotSeenKind::kUpdates, "no optimizer is attached");
  candidate_.not_seen(1, NotSeenKind::kState, "running means");
  const Report report = run();
  EXPECT_THAT(text(report), HasSubstr(R"(
  not seen   updates (candidate): no optimizer is attached
             state (candidate): running means
)"));
  EXPECT_THAT(text(report, {.details = true, .max_rows = 1}), HasSubstr(R"(
  not seen   updates (candidate): no optimizer is attached
             ... and 1 more (--format json lists all)
)"));
  const auto json = nlohmann::json::parse(json_text(report));
  EXPECT_EQ(json["not_seen"], nlohmann::json::parse(R"([
    {"kind": "updates", "side": "candidate", "sentence": "no optimizer is attached"},
    {"kind": "state", "side": "candidate", "sentence": "running means"}])"));
}

TEST_F(ReportTest, ColoursTheVerdictAndEmphasisesTheCause) {
  build_small_model(0.5);
  const Report report = run();
  const std::string plain = text(report);
  const std::string coloured = text(report, {.color = true});
  EXPECT_THAT(plain, StartsWith("DIVERGED  b: "));
  EXPECT_THAT(plain, Not(HasSubstr("\033")));
  EXPECT_THAT(coloured, StartsWith("\033[1;31mDIVERGED\033[0m  b: "));
  EXPECT_THAT(coloured, HasSubstr("\n  cause      \033[1mwrong factor: "));
  EXPECT_EQ(std::regex_replace(coloured, std::regex("\033\\[[0-9;]*m"), ""), plain);
}

TEST_F(ReportTest, JsonOfADivergedRun) {
  build_small_model(0.5);
  const Report report = run();
  const auto json = nlohmann::json::parse(json_text(report));
  EXPECT_EQ(json["schema"], 2);
  EXPECT_EQ(json["verdict"], "diverged");
  const auto& first = json["first_divergence"];
  EXPECT_EQ(first["id"], "s0/m0/output/b/0");
  EXPECT_EQ(first["tier"], "T2");
  EXPECT_EQ(first["ranks"], nlohmann::json({0, 1}));
  EXPECT_EQ(first["bound_source"], report.tensors[2].bound_source());
  EXPECT_EQ(first["where_to_look"], report.where_to_look);
  EXPECT_EQ(first["cause"], report.tensors[2].cause());
  EXPECT_EQ(first["signature"], "wrong_factor");
  EXPECT_EQ(first["probable_cause"], report.diagnosis.value().sentence);
  EXPECT_EQ(json["counts"]["out_of_bound"], 2);
  EXPECT_EQ(json["counts"]["bounds_exact"], 1);
  EXPECT_EQ(json["counts"]["bounds_from_noise"], 4);
  EXPECT_EQ(json["reference"]["precision"], "f32");
  EXPECT_EQ(json["candidate"]["layout"]["tp"], "2");
  ASSERT_EQ(json["tensors"].size(), 5U);
  const auto& tensor = json["tensors"][2];
  EXPECT_EQ(tensor["status"], "diverged");
  EXPECT_EQ(tensor["order"], 2);
  EXPECT_EQ(tensor["factor"], 0.5);
  // Numbers read back bit for bit.
  EXPECT_EQ(tensor["error"].get<double>(), report.tensors[2].comparison->error);
  EXPECT_EQ(tensor["bound"].get<double>(), report.tensors[2].bound());
  EXPECT_EQ(asked(tensor, "whole")["terms"]["q"].get<double>(),
            report.tensors[2].find(Question::kWhole)->term(Term::kQ));
  EXPECT_TRUE(asked(json["tensors"][0], "whole").is_null());
}

TEST_F(ReportTest, JsonOfACleanRunHasNoFirstDivergence) {
  build_small_model(1.0);
  const auto json = nlohmann::json::parse(json_text(run()));
  EXPECT_EQ(json["verdict"], "clean");
  EXPECT_TRUE(json["first_divergence"].is_null());
  EXPECT_TRUE(json["tensors"][0]["max_index"].is_null());
}

TEST_F(ReportTest, JsonWritesNanAndInfAsStringsAndAbsentNumbersAsNull) {
  reference_.add(0, {"s0/m0/output/zero/0", {0, 0}}).add(0, {"s0/m0/output/gone/0", {0, 0}});
  candidate_.add_everywhere({"s0/m0/output/zero/0", {0, 1}});
  const auto json = nlohmann::json::parse(json_text(run()));
  EXPECT_EQ(json["tensors"][0]["factor"], "NaN");
  EXPECT_EQ(json["tensors"][0]["relative_error"], "Inf");
  EXPECT_EQ(json["tensors"][0]["max_index"], nlohmann::json({1}));
  EXPECT_EQ(json["tensors"][1]["status"], "missing_in_candidate");
  EXPECT_TRUE(json["tensors"][1]["error"].is_null());
}

TEST_F(ReportTest, ReportsAreTheSameBytesForAnyNumberOfThreads) {
  for (int i = 0; i < 300; ++i) {
    const std::string id =
        "s0/m" + std::to_string(i % 7) + "/output/layer" + std::to_string(i) + "/0";
    const auto values = wavy(static_cast<std::size_t>(1 + i * 13 % 3000), i);
    noise_.push_back(noise_row(id, 0.01, 0.01));
    reference_.add(0, {id, values});
    if (i % 50 == 17) {
      continue;  // missing
    }
    candidate_.add(0, {id, i % 11 == 0 ? scaled(values, 1.01) : values});
    candidate_.add(1, {id, i % 40 == 3 ? scaled(values, 1.001) : values});
  }
  const Report one = run(1);
  ASSERT_TRUE(one.diverged());
  ASSERT_EQ(one.tensors.size(), 300U);
  for (const int threads : {2, 5, 0}) {
    const Report many = diff(Trace::open(directory_ / "reference"),
                             Trace::open(directory_ / "candidate"),
                             {.threads = threads, .progress = {}});
    EXPECT_EQ(json_text(many), json_text(one)) << threads;
    EXPECT_EQ(text(many), text(one)) << threads;
  }
}

}  // namespace
}  // namespace ttrace
