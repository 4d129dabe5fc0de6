#include "analysis/bounds/calibration.h"

#include "analysis/bounds/spread.h"
#include "analysis/diff.h"
#include "analysis/reports/report_writers.h"
#include "analysis/trace_builder.h"
#include "support/temporary_directory.h"

#include <ttrace/error.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <sstream>
#include <string>
#include <vector>

namespace ttrace {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::kFirst;
using testing::kSecond;
using testing::noise_row;
using ::testing::Not;
using testing::TemporaryDirectory;
using testing::TraceBuilder;
using testing::wavy;

constexpr Statistic kT2 = Statistic::kOfReference;
constexpr double kNoise = 1e-3;
// Of three tensors of four elements that five passes moved alike.
const double kBound = ratio_limit(1.0, 4.0, 20.0, kFalseAlarmsPerRun / 9.0).value * kNoise;
const std::string kBias = "s0/main_grad/a.bias/0";

std::string message_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const Error& error) {
    return error.message();
  }
  return "nothing was thrown";
}

Calibration calibration_of(Statistic statistic, double limit) {
  Calibration calibration;
  calibration.source = "limits.json";
  calibration.precision = "f32";
  calibration.noise_passes = 5;
  calibration.runs.resize(20);
  calibration.rate = 0.01;
  calibration.table.push_back({statistic, 20, 1.0, limit});
  return calibration;
}

// Two outputs and the gradient of a bias, which noise passes moved by kNoise.
class CalibrationTest : public ::testing::Test {
 protected:
  // Errors of the three, over what five passes allow.
  Report run(double first,
             double second,
             double bias,
             const std::optional<Calibration>& calibration = {},
             int passes = 5) {
    const std::string folder = folder_ / std::to_string(++runs_);
    TraceBuilder reference(folder + "/reference", "reference");
    TraceBuilder candidate(folder + "/candidate", "candidate", 2);
    candidate.manifest.data["seed"] = reference.manifest.data["seed"] = "11";
    std::vector<NoiseRow> noise;
    for (const auto& [id, error] :
         std::map<std::string, double>{{kFirst, first}, {kSecond, second}, {kBias, bias}}) {
      std::vector<double> values = wavy(4);
      reference.add(0, {id, values});
      values[1] += error * kBound;
      candidate.add_everywhere({id, values});
      noise.push_back(noise_row(id, kNoise, kNoise));
    }
    const Trace trusted = reference.write();
    testing::write_noise_passes(folder + "/reference", noise, passes);
    DiffOptions options;
    options.calibration = calibration;
    return diff(trusted, candidate.write(), options);
  }
  std::string file(const std::string& text) const {
    const std::string path = folder_ / "limits.json";
    std::ofstream(path) << text;
    return path;
  }

  TemporaryDirectory folder_;
  int runs_ = 0;
};

TEST_F(CalibrationTest, ARunGivesTheLargestFactorThatOneOfItsChecksTakes) {
  const RunMaxima maxima = run_maxima(run(0.25, 0.75, 0.6));
  ASSERT_EQ(maxima.size(), 1U);
  EXPECT_NEAR(maxima.at(kT2), 0.75, 1e-3);
}

TEST_F(CalibrationTest, WhatIsEqualSaysNothing) {
  EXPECT_THAT(run_maxima(run(0.0, 0.0, 0.0)), IsEmpty());
}

// A tensor [64, 128] of attention with heads of 2 columns, of which one row is off by 1.5 times its
// noise, which is nearer to its bound than the tensor and its factor are to theirs.
TEST_F(CalibrationTest, APartThatIsNearestToItsBoundDecidesTheFactor) {
  constexpr std::int64_t kRows = 64;
  constexpr std::int64_t kColumns = 128;
  const std::string id = "s0/m0/output/self_attention.core_attention/0";
  TraceBuilder reference(folder_ / "reference", "reference");
  TraceBuilder candidate(folder_ / "candidate", "candidate");
  reference.manifest.model = candidate.manifest.model = {{"hidden", "128"}, {"heads", "64"}};
  std::vector<double> values = wavy(kRows * kColumns);
  reference.add(0, {id, values, ElementType::kF32, {kRows, kColumns}});
  for (std::size_t column = 0; column < kColumns; ++column) {
    values[3 * kColumns + column] += (column % 2 == 0 ? 1.5 : -1.5) * kNoise;
  }
  candidate.add(0, {id, values, ElementType::kF32, {kRows, kColumns}});
  const Trace trusted = reference.write();
  NoiseRow noise = noise_row(id, kNoise * std::sqrt(kRows * kColumns), kNoise);
  noise.along_reference = 1e-3;
  noise.slices.assign(kRows, kNoise * kNoise * kColumns);
  noise.slices.insert(noise.slices.end(), kColumns, kNoise * kNoise * kRows);
  testing::write_varied_noise_passes(folder_ / "reference", noise, {kRows, kColumns});
  const Report report = diff(trusted, candidate.write());
  const Check* const part = report.tensors[0].find(Question::kPart);
  ASSERT_NE(part, nullptr);
  EXPECT_EQ(part->place.where, "rows 3:4 of dimension 0");
  EXPECT_LT(report.tensors[0].find(Question::kWhole)->share(), 0.5 * part->share());
  ASSERT_NE(report.tensors[0].find(Question::kFactor), nullptr);
  EXPECT_DOUBLE_EQ(run_maxima(report).at(kT2), 1.25 * part->share());
}

// The extra error of another grid in a factor is granted whatever the limit, and so is the
// candidate's own spread.
TEST(FactorComparison, NeedsALimitForWhatIsNotGranted) {
  EXPECT_DOUBLE_EQ((FactorComparison{-5e-3, 1e-3, 0.0, 0.0, 2e-3}.needed_limit()), 3.0);
  EXPECT_EQ((FactorComparison{1e-3, 0.0, 0.0, 0.0, 2e-3}.needed_limit()), 0.0);
  EXPECT_EQ((FactorComparison{-5e-3, 1e-3, 0.0, 6e-3, 0.0}.needed_limit()), 0.0);
}

// By hand: logarithms +-0.22314, mean 0; s^2 = (0.09959 + 5 x 0.04) / 6; t of 6 degrees at 1 % is
// 3.1427: exp(3.1427 sqrt(1.5 x 0.04993)).
TEST(CalibratedLimit, OfTwoRunsIsThePredictionForAThird) {
  EXPECT_NEAR(calibrated_limit(std::vector{0.8, 1.25}, 0.01, 1.0), 2.363, 1e-3);
}

// 2 exp(3.3649 sqrt(2 x 0.04)), 3.3649 being t of 5 degrees at 1 %.
TEST(CalibratedLimit, OfOneRunIsWide) {
  EXPECT_NEAR(calibrated_limit(std::vector{2.0}, 0.01, 1.0), 5.180, 1e-3);
}

TEST(CalibratedLimit, IsAtLeastTheLargestWithAMarginAndTheFloor) {
  EXPECT_DOUBLE_EQ(calibrated_limit(std::vector{1.0, 1.0, 2.0}, 0.5, 1.0), 1.1 * 2.0);
  EXPECT_EQ(calibrated_limit(std::vector{0.1}, 0.01, 1.2), 1.2);
}

// Part of all further runs that exceed a limit of 20 runs, on average over many calibrations.
double exceeding(double deviation, double share) {
  std::mt19937_64 random(7);
  std::normal_distribution<double> logarithm(0.3, deviation);
  constexpr int kTrials = 4000;
  double sum = 0.0;
  for (int trial = 0; trial < kTrials; ++trial) {
    std::vector<double> maxima(20);
    for (double& value : maxima) {
      value = std::exp(logarithm(random));
    }
    const double limit = calibrated_limit(maxima, share, 0.0);
    sum += 0.5 * std::erfc((std::log(limit) - 0.3) / deviation / std::sqrt(2.0));
  }
  return sum / kTrials;
}

TEST(CalibratedLimit, NoMoreThanTheSharedRateExceedsIt) {
  for (const double deviation : {0.13, 0.16, 0.2}) {
    EXPECT_LT(exceeding(deviation, 0.01 / 40), 0.01 / 40) << deviation;
    EXPECT_GT(exceeding(deviation, 0.01 / 40), 1e-7) << deviation;
  }
  // These runs scatter twice as much as the prior knowledge says.
  EXPECT_LT(exceeding(0.4, 0.01 / 40), 3.5 * 0.01 / 40);
}

TEST_F(CalibrationTest, RateIsSharedByAllFactors) {
  std::vector<CleanRun> runs{clean_run(run(0.3, 0.6, 0.5), "runs/1"),
                             clean_run(run(0.3, 0.9, 0.7), "runs/2")};
  runs[0].maxima[Statistic::kOfOperators] = 1.1;
  const Calibration calibration = calibrate(runs, 0.04);
  ASSERT_EQ(calibration.table.size(), 2U);
  EXPECT_EQ(calibration.precision, "f32");
  EXPECT_EQ(calibration.noise_passes, 5);
  const CalibratedLimit& entry = calibration.table[0];
  EXPECT_EQ(entry.statistic, kT2);
  EXPECT_EQ(entry.runs, 2U);
  EXPECT_NEAR(entry.largest, 0.9, 1e-3);
  EXPECT_EQ(
      entry.limit,
      calibrated_limit(std::vector{runs[0].maxima.at(kT2), runs[1].maxima.at(kT2)}, 0.02, 1.0));
  EXPECT_EQ(calibration.table[1].runs, 1U);
  EXPECT_NEAR(calibration.rate_bound(), 1.0 - std::sqrt(0.05), 1e-12);
}

TEST_F(CalibrationTest, FileIsReadBackAndHidesTheFolders) {
  const Calibration written =
      calibrate(std::vector{clean_run(run(0.3, 0.6, 0.5), "secret/1")}, 0.01);
  std::ostringstream text;
  write_calibration(text, written);
  EXPECT_THAT(text.str(), Not(HasSubstr("secret")));
  const Calibration read = read_calibration(file(text.str()));
  EXPECT_EQ(read.precision, written.precision);
  EXPECT_EQ(read.noise_passes, written.noise_passes);
  EXPECT_EQ(read.rate, written.rate);
  ASSERT_EQ(read.runs.size(), 1U);
  EXPECT_EQ(read.runs[0].seed, "11");
  EXPECT_EQ(read.runs[0].layout, (Section{{"tp", "2"}}));
  ASSERT_EQ(read.table.size(), written.table.size());
  for (std::size_t i = 0; i < read.table.size(); ++i) {
    EXPECT_EQ(read.table[i].statistic, written.table[i].statistic);
    EXPECT_EQ(read.table[i].runs, written.table[i].runs);
    EXPECT_EQ(read.table[i].largest, written.table[i].largest);
    EXPECT_EQ(read.table[i].limit, written.table[i].limit);
  }
}

TEST_F(CalibrationTest, ACalibratedFactorWidensTheBound) {
  EXPECT_TRUE(run(0.0, 1.4, 0.0).diverged());
  const Report wide = run(0.0, 1.4, 0.0, calibration_of(kT2, 1.5));
  EXPECT_FALSE(wide.diverged());
  const Check* const whole = wide.tensors[1].find(Question::kWhole);
  ASSERT_NE(whole, nullptr);
  EXPECT_EQ(whole->term(Term::kKernelFactor), 1.5);
  EXPECT_NEAR(whole->bound, 1.5 * kBound, 1e-6);
}

TEST_F(CalibrationTest, ReportSaysWhatIsPromisedAndWhichLimitsAreShipped) {
  const Report report = run(0.0, 0.25, 0.25, calibration_of(Statistic::kOfOperators, 1.5), 2);
  std::ostringstream text;
  write_text(text, report, {});
  EXPECT_THAT(
      text.str(),
      AllOf(
          HasSubstr("\n  limits     calibrated over 20 clean runs; fewer than 13.9 % of clean runs "
                    "raise a false alarm (95 % confidence); shipped limits, where those runs had "
                    "no such checks: T2\n"),
          HasSubstr("remark     the calibration is for 5 noise passes, but this reference has 2"),
          Not(HasSubstr("shipped defaults"))));
  std::ostringstream json;
  write_json(json, report);
  const auto calibration = nlohmann::json::parse(json.str()).at("calibration");
  EXPECT_EQ(calibration.at("runs"), 20);
  EXPECT_EQ(calibration.at("rate"), 0.01);
  EXPECT_NEAR(calibration.at("rate_bound").get<double>(), 0.1391, 1e-4);
  EXPECT_EQ(calibration.at("shipped"), nlohmann::json({"T2"}));
}

TEST_F(CalibrationTest, OfAnotherPrecisionIsRefused) {
  Calibration calibration = calibration_of(kT2, 1.5);
  calibration.precision = "bf16";
  EXPECT_EQ(message_of([&] { run(0.0, 0.0, 0.0, calibration); }),
            "the calibration limits.json is for bf16, but the reference computed in f32; calibrate "
            "with runs in that precision, or leave --calibration out");
}

TEST_F(CalibrationTest, RunsThatAreNotKnownToBeRightAreRefused) {
  Report report = run(0.0, 1.4, 0.0);
  EXPECT_EQ(message_of([&] { static_cast<void>(clean_run(report, "runs/3")); }),
            "runs/3 diverged, first at " + kSecond +
                "; limits need runs that are known to be right, so leave it out, or pass --vouched "
                "if you know that it is right");
  report = run(0.0, 0.25, 0.0);
  report.tensors[0].add(failed(Question::kShape, "made up"));
  report.tensors[0].excuse(Excuse::kBehindFlip);
  EXPECT_THAT(message_of([&] { static_cast<void>(clean_run(report, "runs/3")); }),
              HasSubstr("runs/3 is undecided"));
  report = run(0.0, 0.25, 0.0);
  report.noise_passes = 0;
  EXPECT_THAT(message_of([&] { static_cast<void>(clean_run(report, "runs/3")); }),
              HasSubstr("runs/3 has no noise passes"));
  report = run(0.0, 0.25, 0.0);
  report.candidate.manifest.precision = "bf16";
  EXPECT_THAT(message_of([&] { static_cast<void>(clean_run(report, "runs/3")); }),
              HasSubstr("runs/3 compares f32 with bf16"));
}

// Symptom: limits followed from those runs alone that raised no alarm under the shipped ones, and
// their number was the ground of the stated rate.
TEST_F(CalibrationTest, RunsThatAreVouchedForCountWhateverTheyExceed) {
  const CleanRun beyond = clean_run(run(0.0, 1.4, 0.0), "runs/2", Vouched::kYes);
  EXPECT_TRUE(beyond.alarms);
  EXPECT_NEAR(beyond.maxima.at(kT2), 1.4, 1e-2);
  const CleanRun within = clean_run(run(0.0, 0.25, 0.25), "runs/1", Vouched::kYes);
  EXPECT_FALSE(within.alarms);
  Calibration calibration = calibrate(std::vector{within, beyond}, 0.01, Vouched::kYes);
  EXPECT_EQ(calibration.alarms_shipped, 1U);
  EXPECT_GT(calibration.limits().of(kT2), 1.4);
  calibration.alarms = 1;
  EXPECT_NEAR(calibration.rate_bound(), 0.9874, 1e-4) << "1 of 2";

  std::ostringstream text;
  write_calibration(text, calibration);
  const Calibration read = read_calibration(file(text.str()));
  EXPECT_EQ(read.vouched, Vouched::kYes);
  EXPECT_EQ(read.alarms_shipped, 1U);
  EXPECT_EQ(read.alarms, 1U);
  std::ostringstream report;
  write_text(report, run(0.0, 0.25, 0.25, calibration), {});
  EXPECT_THAT(report.str(),
              HasSubstr("limits     calibrated over 2 runs that the user vouched for, of which 1 "
                        "raised an alarm under the shipped limits and 1 under these; fewer than "
                        "98.7 % of clean runs raise a false alarm (95 % confidence)"));
}

TEST_F(CalibrationTest, NobodyCanVouchForWhatNoLimitExcuses) {
  Report report = run(0.0, 1.4, 0.0);
  report.tensors[1].add(failed(Question::kShape, "it has another shape"));
  EXPECT_EQ(message_of([&] { static_cast<void>(clean_run(report, "runs/3", Vouched::kYes)); }),
            "runs/3 cannot be vouched for, because no limit can excuse the finding at " +
                to_string(report.tensors[1].id) + ": it has another shape; leave it out");
}

// Source: tables of Clopper and Pearson.
TEST(RateInterval, IsThatOfClopperAndPearson) {
  EXPECT_EQ(rate_interval(0, 20).from, 0.0);
  EXPECT_NEAR(rate_interval(0, 20).to, 1.0 - std::pow(0.05, 1.0 / 20.0), 1e-12);
  EXPECT_NEAR(rate_interval(1, 20).from, 0.00127, 1e-5);
  EXPECT_NEAR(rate_interval(1, 20).to, 0.24873, 1e-5);
  EXPECT_EQ(rate_interval(5, 5).to, 1.0);
}

TEST(Calibrate, MixedPrecisionsAreRefusedWithBothRuns) {
  const std::vector<CleanRun> runs{{"runs/1", "bf16", 5, {}, "", {{kT2, 0.8}}, false},
                                   {"runs/2", "f32", 5, {}, "", {{kT2, 0.8}}, false}};
  EXPECT_EQ(message_of([&] { static_cast<void>(calibrate(runs, 0.01)); }),
            "runs/1 is in bf16, but runs/2 is in f32; calibrate each precision on its own");
}

TEST(Calibrate, RunsThatDifferNowhereSayNothing) {
  EXPECT_THAT(message_of([] {
                static_cast<void>(calibrate(
                    std::vector<CleanRun>{{"runs/1", "f32", 5, {}, "", {}, false}}, 0.01));
              }),
              HasSubstr("nothing differs from the reference in 1 run"));
}

TEST_F(CalibrationTest, FilesThatAreNoneAreRefusedWithTheirName) {
  const auto complaint = [&](const std::string& text) {
    return message_of([&] { static_cast<void>(read_calibration(file(text))); });
  };
  std::ostringstream text;
  write_calibration(text, calibration_of(kT2, 1.5));
  const std::string good = text.str();
  EXPECT_EQ(read_calibration(file(good)).table.size(), 1U);
  const auto with = [&](const std::string& old, const std::string& other) {
    std::string changed = good;
    return changed.replace(changed.find(old), old.size(), other);
  };
  for (const std::string& broken : {std::string("{"),
                                    std::string("[]"),
                                    good.substr(0, good.size() / 2),
                                    with("ttrace calibration", "something else"),
                                    with("\"limits\"", "\"limit\""),
                                    with("\"T2\"", "\"T4\""),
                                    with("1.5", "0.5"),
                                    with("1.5", "\"much\""),
                                    with("0.01", "1.5")}) {
    EXPECT_THAT(
        complaint(broken),
        AllOf(HasSubstr("limits.json"), HasSubstr("write it again with `ttrace calibrate`")))
        << broken;
  }
  EXPECT_THAT(complaint(with("\"schema\": 2", "\"schema\": 3")),
              HasSubstr("a newer TTrace wrote it (schema 3, but this program reads 2)"));
  EXPECT_THAT(complaint(with("\"schema\": 2", "\"schema\": 1")),
              HasSubstr("an earlier TTrace wrote it, with limits by class of tensors"));
  EXPECT_THAT(message_of([&] { static_cast<void>(read_calibration(folder_ / "none.json")); }),
              HasSubstr("there is no calibration "));
}

}  // namespace
}  // namespace ttrace
