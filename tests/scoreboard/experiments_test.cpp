// Code that the scoreboard and the random layouts share.
#include "support/check_run.h"
#include "support/clopper_pearson.h"
#include "support/derived_config.h"
#include "support/named_terms.h"
#include "support/run_process.h"
#include "support/task_list.h"
#include "support/temporary_directory.h"

#include <ttrace/error.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <stdexcept>

namespace ttrace::testing {
namespace {

using ::testing::HasSubstr;

// Known values: tables of the Clopper-Pearson interval (two-sided, 95 %).
TEST(ClopperPearson, GivesKnownUpperBounds) {
  EXPECT_NEAR(clopper_pearson_upper(0, 100), 0.0362167, 1e-6);
  EXPECT_NEAR(clopper_pearson_upper(1, 100), 0.0544594, 1e-6);
  EXPECT_NEAR(clopper_pearson_upper(5, 100), 0.1128349, 1e-6);
  EXPECT_NEAR(clopper_pearson_upper(0, 300), 0.0122209, 1e-6);
  EXPECT_NEAR(clopper_pearson_upper(2, 10), 0.5560955, 1e-6);
}

TEST(ClopperPearson, KnowsNothingWithoutTrials) {
  EXPECT_EQ(clopper_pearson_upper(0, 0), 1.0);
  EXPECT_EQ(clopper_pearson_upper(7, 7), 1.0);
}

TEST(DerivedConfig, ChangesKeysAndKeepsTheRest) {
  const TemporaryDirectory folder;
  write_derived_config(TTRACE_SOURCE "/examples/tiny.yaml",
                       {{"model.hidden", "64"}, {"model.frozen", "[0, 2]"}, {"loss", "per_token"}},
                       folder / "run.yaml");
  const YAML::Node config = YAML::LoadFile(folder / "run.yaml");
  EXPECT_EQ(config["model"]["hidden"].as<int>(), 64);
  EXPECT_EQ(config["model"]["frozen"][1].as<int>(), 2);
  EXPECT_EQ(config["loss"].as<std::string>(), "per_token");
  EXPECT_EQ(config["model"]["activation"].as<std::string>(), "swiglu");
  EXPECT_FALSE(read_text(config["data"]["file"].as<std::string>()).empty());
}

TEST(DerivedConfig, OfNoFileIsAnErrorThatNamesIt) {
  try {
    write_derived_config("/nowhere/tiny.yaml", {}, "/nowhere/run.yaml");
    FAIL() << "no error";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.message(), HasSubstr("/nowhere/tiny.yaml"));
  }
}

TEST(CheckRun, CountsTheRanksOfALayout) {
  EXPECT_EQ(ranks_of(""), 1);
  EXPECT_EQ(ranks_of("--tp 2 --sp --ep 2 --etp 1"), 2);
  EXPECT_EQ(ranks_of("--pp 2 --vpp 2 --dp 3 --zero1"), 6);
}

TEST(CheckRun, WithoutAVerdictSaysWhy) {
  const TemporaryDirectory folder;
  const CheckResult result = run_check({.program = TTRACE_BIN "/ttrace",
                                        .reference = "true",
                                        .candidate = "echo no such model >&2; exit 3",
                                        .folder = folder / "check",
                                        .noise = 0});
  EXPECT_THAT(result.problem, HasSubstr("exited with status 3"));
  EXPECT_THAT(result.problem, HasSubstr("..."));
  EXPECT_FALSE(result.diverged);
  EXPECT_TRUE(result.report.is_null());
}

// Scoreboard and ROC give its alarms and finds as those of users of --no-forced.
TEST(CheckRun, JudgedWithoutForcedPassesIsWhatNoForcedSays) {
  const TemporaryDirectory folder;
  const TrainingRun training{.config = TTRACE_SOURCE "/examples/tiny.yaml", .precision = "bf16"};
  CheckRequest request{
      .program = TTRACE_BIN "/ttrace",
      .reference = reference_command(TTRACE_BIN, training),
      .candidate = candidate_command(TTRACE_BIN, "", training, "") + " --bug softmax-scale",
      .folder = folder / "whole",
      .noise = 2};
  const CheckResult whole = run_check(request);
  ASSERT_EQ(whole.problem, "");
  const CheckResult judged = judge_without_forced(request);
  ASSERT_EQ(judged.problem, "");
  request.rerun = request.reference;
  request.reference = request.folder + "/reference";
  request.folder = folder / "without";
  request.options = {"--no-forced"};
  const CheckResult without = run_check(request);
  ASSERT_EQ(without.problem, "");
  EXPECT_EQ(judged.report.at("tensors"), without.report.at("tensors"));
  EXPECT_EQ(judged.report.at("first_divergence"), without.report.at("first_divergence"));
  EXPECT_NE(judged.report.at("tensors"), whole.report.at("tensors")) << "forced passes say more";
}

// --- what a probable cause names ---------------------------------------------------------------

nlohmann::json report_that_names(const std::vector<std::string>& axes,
                                 const std::vector<double>& factors,
                                 const std::vector<int>& ranks) {
  return {{"diagnoses",
           {{{"named", {{"axes", axes}, {"factors", factors}, {"ranks", ranks}}}},
            {{"named", {{"axes", {"pp"}}, {"factors", {3.0}}, {"ranks", {7}}}}}}}};
}

// Symptom: `a = 2.000 = cp` counted as naming no factor.
TEST(NamedTerms, AreThoseOfTheFirstDiagnosis) {
  EXPECT_EQ(named_terms(report_that_names({"cp"}, {2.0}, {1, 2})),
            (NamedTerms{.axes = {"cp"}, .factor = 2.0, .ranks = {1, 2}}));
}

TEST(NamedTerms, HaveTheFactorOfAllAddendsThatDoNotCountOnce) {
  const auto factor = [](const std::vector<double>& factors) {
    return named_terms(report_that_names({}, factors, {})).factor;
  };
  EXPECT_EQ(factor({0.5, 0.5, 1.0, 1.0}), 0.5);
  EXPECT_EQ(factor({0.0, 1.0}), 0.0);
  EXPECT_EQ(factor({8.0, 4.0, 2.0, 1.0}), std::nullopt);
}

TEST(NamedTerms, AreNoneWithoutADiagnosis) {
  EXPECT_EQ(named_terms({{"diagnoses", nlohmann::json::array()}}), NamedTerms{});
  EXPECT_EQ(named_terms({{"diagnoses", {{{"named", nullptr}}}}}), NamedTerms{});
}

TEST(TaskList, RunsEveryTaskOnceAndBehindTheOneItWaitsFor) {
  std::vector<int> order;
  std::mutex mutex;
  std::vector<Task> tasks;
  for (int i = 0; i < 20; ++i) {
    const auto after = i < 4 ? std::nullopt : std::optional<std::size_t>(i - 4);
    tasks.push_back({[&, i] {
                       const std::lock_guard lock(mutex);
                       order.push_back(i);
                     },
                     after});
  }
  run_tasks(tasks, 3);
  ASSERT_EQ(order.size(), 20U);
  const auto place = [&](int task) { return std::find(order.begin(), order.end(), task); };
  for (int i = 4; i < 20; ++i) {
    EXPECT_LT(place(i - 4), place(i));
  }
}

TEST(TaskList, EndsWithTheFirstException) {
  std::atomic<int> ran = 0;
  const std::vector<Task> tasks = {
      {[&] { ++ran; }}, {[&]() { throw std::runtime_error("lost"); }}, {[&] { ++ran; }, 1}};
  EXPECT_THROW(run_tasks(tasks, 1), std::runtime_error);
  EXPECT_EQ(ran, 1);
}

TEST(TaskList, RefusesToWaitForALaterTask) {
  EXPECT_THROW(run_tasks({{[] {}, 0}}, 1), InternalError);
}

}  // namespace
}  // namespace ttrace::testing
