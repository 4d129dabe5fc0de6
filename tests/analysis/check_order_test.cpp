// The order in which checks run must not show in a report.
#include "analysis/diff.h"
#include "analysis/reports/report_writers.h"
#include "analysis/trace_builder.h"
#include "support/temporary_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <sstream>
#include <string>
#include <vector>

namespace ttrace {
namespace {

using testing::noise_row;
using testing::off;
using testing::scaled;
using testing::TemporaryDirectory;
using testing::Tensor;
using testing::TraceBuilder;
using testing::wavy;

constexpr auto kKind = ElementType::kF32;

std::string bytes_of(const Report& report) {
  std::ostringstream out;
  write_text(out, report, {});
  write_json(out, report);
  write_junit(out, report);
  return out.str();
}

// A run in which nearly every question fails somewhere: copies that differ and a wrong operator in
// one tensor, a wrong row, a factor, NaN, another shape, a norm that is not that of its gradients,
// a missing tensor, and a golden pass.
class CheckOrder : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::vector<double> values = wavy(256, 0.3);
    std::vector<double> row = values;
    std::vector<double> with_nan = values;
    for (std::size_t i = 32; i < 48; ++i) {
      row[i] *= 1.5;
    }
    with_nan[7] = std::nan("");
    add("s0/m0/output/a/0", values, {scaled(values, 1.5), scaled(values, 1.7)});
    add("s0/m0/output/b/0", values, {row, row});
    add("s0/m0/output/c/0", values, {scaled(values, 1.004), scaled(values, 1.004)});
    add("s0/m0/output/d/0", values, {with_nan, with_nan});
    add("s0/main_grad/fc.weight/0", values, {values, values});
    double squares = 0.0;
    for (const double value : values) {
      squares += value * value;
    }
    const std::vector<double> norm = {std::sqrt(squares)};
    add("s0/scalar/grad_norm/0", norm, {scaled(norm, 1.01), scaled(norm, 1.01)}, {});
    add("s0/param_next/fc.weight/0", values, {off(values, 0.05, 1.0), off(values, 0.05, 1.0)});
    reference_.add(0, {"s0/m0/output/gone/0", values, kKind, {16, 16}, {}});
  }
  void add(const std::string& id,
           const std::vector<double>& right,
           const std::vector<std::vector<double>>& found,
           const std::vector<std::int64_t>& shape = {16, 16}) {
    reference_.add(0, {id, right, kKind, shape, {}});
    golden_.add(0, {id, off(right, 1e-3, 5.0), kKind, shape, {}});
    wide_.add(0, {id, right, kKind, shape, {}});
    native_.add(0, {id, off(right, 1e-3, 2.0), kKind, shape, {}});
    candidate_.add(0, {id, found[0], kKind, shape, {}});
    candidate_.add(1, {id, found[1], kKind, shape, {}});
    noise_.push_back(noise_row(id, 0.01, 0.002));
  }

  TemporaryDirectory folder_;
  TraceBuilder reference_{folder_ / "reference", "reference"};
  TraceBuilder candidate_{folder_ / "candidate", "candidate", 2};
  TraceBuilder golden_{folder_ / "golden", "golden"};
  TraceBuilder wide_{folder_ / "wide", "forced"};
  TraceBuilder native_{folder_ / "native", "forced"};
  std::vector<NoiseRow> noise_;
};

TEST_F(CheckOrder, ReportsHaveTheSameBytesInWhateverOrderQuestionsAreAsked) {
  const Trace reference = reference_.write();
  testing::write_noise_passes(folder_ / "reference", noise_);
  const Trace candidate = candidate_.write();
  const Trace golden = golden_.write();
  const ForcedTraces forced{wide_.write(), native_.write()};
  DiffOptions options;
  options.threads = 1;
  options.forced = &forced;
  options.golden = &golden;
  const Report in_order = diff(reference, candidate, options);
  ASSERT_TRUE(in_order.diverged());
  EXPECT_GE(in_order.counts().operators_wrong, 1U);
  EXPECT_TRUE(in_order.tensors.at(0).fails(Question::kStructure));
  EXPECT_TRUE(in_order.tensors.at(0).fails(Question::kOperator));
  const std::string expected = bytes_of(in_order);
  for (options.shuffle = 1; options.shuffle <= 20; ++options.shuffle) {
    ASSERT_EQ(bytes_of(diff(reference, candidate, options)), expected)
        << "order " << options.shuffle;
  }
}

TEST(SpeakingChecks, OnlyTheFirstOfWholePartAndFactorSpeaks) {
  std::vector<Check> checks;
  insert_check(checks, failed(Question::kFactor, Symptom::kFactor, "factor"));
  insert_check(checks, failed(Question::kPart, Symptom::kSlice, "part"));
  insert_check(checks, failed(Question::kOperatorPart, Symptom::kOperator, "operators"));
  const auto speakers = speaking(checks);
  ASSERT_EQ(speakers.size(), 2U);
  EXPECT_EQ(speakers[0]->sentence, "operators");
  EXPECT_EQ(speakers[1]->sentence, "part");
}

TEST(SpeakingChecks, ThatATensorIsTooCoarseGoesWithoutSayingWhereAnotherCheckFails) {
  std::vector<Check> checks = {failed(Question::kTooCoarse, Symptom::kTooCoarse, "coarse")};
  EXPECT_EQ(speaking(checks).size(), 1U);
  insert_check(checks, failed(Question::kWhole, Symptom::kOutOfBound, "far"));
  ASSERT_EQ(speaking(checks).size(), 1U);
  EXPECT_EQ(speaking(checks)[0]->sentence, "far");
}

TEST(VerdictOfChecks, StructureDecidesTheTierThoughTheOperatorSpeaksFirst) {
  TensorVerdict verdict;
  verdict.add(failed(Question::kStructure, Symptom::kReplicasDisagree, "copies differ", {0, 1}));
  verdict.add(failed(Question::kOperator, Symptom::kOperator, "operators are wrong"));
  EXPECT_EQ(verdict.tier(), Tier::kT0);
  EXPECT_EQ(verdict.symptom(), Symptom::kOperator);
  EXPECT_EQ(verdict.cause(), "operators are wrong; also: copies differ");
  EXPECT_EQ(verdict.status(), Status::kDiverged);
}

TEST(VerdictOfChecks, ExcusesStandNextToWhatTheyExcuse) {
  TensorVerdict verdict;
  verdict.add(failed(Question::kWhole, Symptom::kOutOfBound, "far"));
  verdict.excuse(Excuse::kAllowed);
  EXPECT_EQ(verdict.status(), Status::kDiverged);
  EXPECT_TRUE(verdict.is_wrong());
  EXPECT_FALSE(verdict.is_finding());
  verdict.excuse(Excuse::kInherited);
  EXPECT_EQ(verdict.status(), Status::kInherited);
  EXPECT_FALSE(verdict.is_wrong());
}

}  // namespace
}  // namespace ttrace
