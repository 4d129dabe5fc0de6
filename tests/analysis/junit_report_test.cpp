#include "analysis/diff.h"
#include "analysis/golden_wording.h"
#include "analysis/reports/facts.h"
#include "analysis/reports/report_writers.h"
#include "analysis/trace_builder.h"
#include "support/temporary_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <limits>
#include <pugixml.hpp>
#include <sstream>
#include <string>
#include <vector>

namespace ttrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::noise_row;
using testing::scaled;
using ::testing::StartsWith;
using testing::TemporaryDirectory;
using testing::TraceBuilder;
using testing::wavy;

class JunitReport : public ::testing::Test {
 protected:
  Report run(const DiffOptions& options = {}) {
    const Trace reference = reference_.write();
    if (!noise_.empty()) {
      testing::write_noise_passes(directory_ / "reference", noise_);
    }
    return diff(reference, candidate_.write(), options);
  }
  // The tensors of one module: all are within bound, except those that are multiplied.
  void add(const std::string& id, double factor = 1.0) {
    reference_.add(0, {id, wavy(4), ElementType::kF32});
    candidate_.add_everywhere({id, factor == 1.0 ? wavy(4) : scaled(wavy(4), factor)});
    noise_.push_back(noise_row(id, 0.0078125, 0.0078125));
  }
  void add_model(double factor) {
    add("s0/m0/output/a/0");
    add("s0/m0/output/b/0", factor);
    add("s0/main_grad/a.weight/0", factor);
    add("s0/main_grad/b.weight/0");
  }
  static std::string text(const Report& report) {
    std::ostringstream out;
    write_junit(out, report);
    return out.str();
  }
  pugi::xml_node parse(const Report& report) {
    const pugi::xml_parse_result result = document_.load_string(text(report).c_str());
    EXPECT_TRUE(result) << result.description();
    return document_.child("testsuites");
  }
  static pugi::xml_node test(pugi::xml_node root, const std::string& id) {
    return root.find_node([&](pugi::xml_node node) {
      return node.name() == std::string("testcase") && node.attribute("name").value() == id;
    });
  }
  // Attributes of a suite, or of all, against the elements below it.
  static void expect_true_counts(pugi::xml_node node) {
    const auto count = [&](const char* path) { return node.select_nodes(path).size(); };
    EXPECT_EQ(node.attribute("tests").as_ullong(), count(".//testcase"));
    EXPECT_EQ(node.attribute("failures").as_ullong(), count(".//testcase/failure"));
    EXPECT_EQ(node.attribute("errors").as_ullong(), count(".//testcase/error"));
    EXPECT_EQ(node.attribute("skipped").as_ullong(), count(".//testcase/skipped"));
  }
  // Compares the counts of all suites with those of the JSON report.
  static void expect_counts_of_json(pugi::xml_node root, const Report& report) {
    std::ostringstream out;
    write_json(out, report);
    const auto counts = nlohmann::json::parse(out.str()).at("counts");
    const auto sum = [&](const std::vector<std::string>& names) {
      std::size_t all = 0;
      for (const std::string& name : names) {
        all += counts.at(name).get<std::size_t>();
      }
      return all;
    };
    expect_true_counts(root);
    for (const pugi::xml_node suite : root.children("testsuite")) {
      expect_true_counts(suite);
    }
    EXPECT_EQ(root.attribute("tests").as_ullong() - root.attribute("errors").as_ullong(),
              sum({"tensors"}));
    EXPECT_EQ(root.attribute("failures").as_ullong(),
              sum({"out_of_bound", "missing_in_candidate", "missing_in_reference"}));
    EXPECT_EQ(root.attribute("skipped").as_ullong(),
              sum({"inherited",
                   "incomplete",
                   "behind_flip",
                   "not_judged",
                   "allowed_failed",
                   "allowed_missing"}));
  }
  static std::vector<std::string> suites(pugi::xml_node root) {
    std::vector<std::string> names;
    for (const pugi::xml_node suite : root.children("testsuite")) {
      names.emplace_back(suite.attribute("name").value());
    }
    return names;
  }

  TemporaryDirectory directory_;
  TraceBuilder reference_{directory_ / "reference", "reference"};
  TraceBuilder candidate_{directory_ / "candidate", "candidate", 2};
  std::vector<NoiseRow> noise_;
  pugi::xml_document document_;
};

TEST_F(JunitReport, WhatNoiseDidNotReachHasAWeakBound) {
  add_model(1.0);
  for (NoiseRow& row : noise_) {
    row.covered = true;
  }
  noise_[0].sum_squared = noise_[0].max_abs = 0.0;
  noise_[0].covered = false;
  const Report report = run();
  const pugi::xml_node root = parse(report);
  expect_counts_of_json(root, report);
  EXPECT_THAT(test(root, "s0/m0/output/a/0").child("system-out").text().get(),
              StartsWith("weak bound: class default (code that torch does not dispatch made it"));
  EXPECT_TRUE(test(root, "s0/m0/output/b/0").child("system-out").empty());
  const pugi::xml_node property = root.child("testsuite").first_child().child("property");
  EXPECT_STREQ(property.attribute("name").value(), "noise");
  EXPECT_THAT(property.attribute("value").value(), StartsWith("noise reached 3 of 4 tensors; 1"));
}

TEST_F(JunitReport, WhatWasNotSeenIsAProperty) {
  add_model(1.0);
  candidate_.not_seen(0, NotSeenKind::kUpdates, "no optimizer is attached");
  const pugi::xml_node root = parse(run());
  const pugi::xml_node property = root.child("testsuite").first_child().last_child();
  EXPECT_STREQ(property.attribute("name").value(), "not seen");
  EXPECT_STREQ(property.attribute("value").value(),
               "updates (candidate): no optimizer is attached");
}

TEST_F(JunitReport, ALabelBeginsTheNameOfEveryTest) {
  add_model(2.0);
  const Report report = run();
  std::ostringstream out;
  write_junit(out, report, "tp2 & dp2");
  ASSERT_TRUE(document_.load_string(out.str().c_str()));
  const pugi::xml_node root = document_.child("testsuites");
  EXPECT_STREQ(root.attribute("name").value(), "tp2 & dp2: ttrace");
  EXPECT_FALSE(test(root, "tp2 & dp2: s0/m0/output/b/0").child("failure").empty());
  EXPECT_EQ(root.select_nodes(".//testcase[starts-with(@name, 'tp2 & dp2: s0/')]").size(), 4U);
  expect_true_counts(root);
}

TEST_F(JunitReport, CleanRunPassesEveryTest) {
  add_model(1.0);
  const Report report = run();
  const pugi::xml_node root = parse(report);
  expect_counts_of_json(root, report);
  EXPECT_EQ(root.attribute("tests").as_int(), 4);
  EXPECT_EQ(root.attribute("failures").as_int(-1), 0);
  EXPECT_EQ(root.attribute("skipped").as_int(-1), 0);
  EXPECT_THAT(suites(root), ElementsAre("a", "b"));
  EXPECT_EQ(test(root, "s0/main_grad/a.weight/0").attribute("classname").value(), std::string("a"));
}

TEST_F(JunitReport, FirstDivergenceIsTheFirstFailure) {
  add_model(0.5);
  const Report report = run();
  ASSERT_TRUE(report.diverged());
  const pugi::xml_node root = parse(report);
  expect_counts_of_json(root, report);
  // The module of the first divergence, though the reference came to another one before.
  EXPECT_THAT(suites(root), ElementsAre("b", "a"));
  const pugi::xml_node failure = root.select_node("//failure").node();
  EXPECT_EQ(failure.parent().attribute("name").value(), std::string("s0/m0/output/b/0"));
  EXPECT_EQ(failure.attribute("type").value(), std::string("factor"));
  EXPECT_WORDING(failure.attribute("message").value());
  for (const Fact& fact : facts_of_finding(report, 1)) {
    EXPECT_THAT(failure.text().get(), HasSubstr(std::string(fact.label) + ": " + fact.text + "\n"));
  }
  const pugi::xml_node second = test(root, "s0/main_grad/a.weight/0").child("failure");
  EXPECT_THAT(second.attribute("message").value(), StartsWith("it differs "));
}

TEST_F(JunitReport, MissingTensorsFailAndAllowedOnesAreSkipped) {
  add("s0/m0/output/a/0");
  add("s0/m0/output/b/0", 0.5);
  reference_.add(0, {"s0/m0/output/gone/0", {1, 2}});
  reference_.add(0, {"s0/m0/output/untraced/0", {1, 2}});
  candidate_.add_everywhere({"s0/m0/output/new/0", {1, 2}});
  DiffOptions options;
  options.allow_failed.emplace_back("allow-failed", "output/b");
  options.allow_missing.emplace_back("allow-missing", "untraced");
  const Report report = run(options);
  const pugi::xml_node root = parse(report);
  expect_counts_of_json(root, report);
  EXPECT_STREQ(test(root, "s0/m0/output/gone/0").child("failure").attribute("type").value(),
               "missing");
  EXPECT_THAT(test(root, "s0/m0/output/new/0").child("failure").attribute("message").value(),
              HasSubstr("the candidate recorded it on "));
  EXPECT_STREQ(test(root, "s0/m0/output/b/0").child("skipped").attribute("message").value(),
               "allowed: factor 0.5000");
  EXPECT_STREQ(test(root, "s0/m0/output/untraced/0").child("skipped").attribute("message").value(),
               "allowed: missing in the candidate");
}

TEST_F(JunitReport, WhatBelongsToNoModuleIsGroupedByWhatItIs) {
  add("s0/m0/data/tokens/0");
  add("s0/m0/data/labels/0");
  add("s0/m0/output/layers.0.fc/0");
  add("s0/m0/loss/loss/0");
  add("s0/param_next/layers.0.fc.bias/0");
  add("s0/param_next/scale/0");
  add("s0/scalar/grad_norm/0");
  EXPECT_THAT(suites(parse(run())), ElementsAre("data", "layers.0.fc", "loss", "scale", "scalar"));
}

// A green file would be read as a promise about the whole.
TEST_F(JunitReport, PartialVerdictIsAnError) {
  add_model(1.0);
  Report report = run();
  report.lacking = {"candidate: step 1 of <rank> 3 & others was interrupted"};
  const pugi::xml_node root = parse(report);
  expect_counts_of_json(root, report);
  EXPECT_EQ(root.attribute("errors").as_int(), 1);
  const pugi::xml_node error = root.select_node("//error").node();
  EXPECT_STREQ(error.attribute("type").value(), "partial");
  EXPECT_THAT(error.text().get(), HasSubstr("step 1 of <rank> 3 & others"));
}

TEST_F(JunitReport, UndecidedVerdictIsAnErrorAndInheritedErrorsAreSkipped) {
  add_model(1.0);
  Report report = run();
  for (std::size_t i = 1; i < 3; ++i) {
    report.tensors[i].add(failed(Question::kShape, "made up"));
  }
  report.tensors[1].excuse(Excuse::kBehindFlip);
  report.tensors[2].excuse(Excuse::kInherited);
  report.tensors[3].excuse(Excuse::kRounds);
  const pugi::xml_node root = parse(report);
  expect_counts_of_json(root, report);
  EXPECT_EQ(root.attribute("skipped").as_int(), 3);
  EXPECT_STREQ(root.select_node("//error").node().attribute("type").value(), "undecided");
}

TEST_F(JunitReport, EveryTextIsEscapedAndForeignBytesAreReplaced) {
  add_model(0.5);
  Report report = run();
  for (Check& check : report.tensors[1].checks) {
    check.sentence = check.holds ? "" : "<a> & \"b\" 'c' ]]> \x1b[1m \xff \xc3\xa4";
  }
  const pugi::xml_node root = parse(report);
  EXPECT_THAT(root.select_node("//failure").node().text().get(),
              HasSubstr("<a> & \"b\" 'c' ]]> [1m \xef\xbf\xbd \xc3\xa4"));
}

TEST_F(JunitReport, NumbersThatAreNoneAreWords) {
  reference_.add(0, {"s0/m0/output/zero/0", {0, 0}});
  candidate_.add_everywhere({"s0/m0/output/zero/0", {0, std::numeric_limits<double>::quiet_NaN()}});
  const Report report = run();
  const pugi::xml_node root = parse(report);
  expect_counts_of_json(root, report);
  EXPECT_EQ(root.attribute("failures").as_int(), 1);
}

TEST_F(JunitReport, BytesFollowFromTheReportAlone) {
  add_model(0.5);
  const std::string first = text(run());
  EXPECT_EQ(text(diff(Trace::open(directory_ / "reference"),
                      Trace::open(directory_ / "candidate"),
                      {.threads = 1, .progress = {}})),
            first);
  EXPECT_THAT(first, StartsWith("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites "));
  EXPECT_THAT(first, ::testing::Not(HasSubstr(directory_.path())));
}

}  // namespace
}  // namespace ttrace
