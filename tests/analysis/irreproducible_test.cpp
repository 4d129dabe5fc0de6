// What the self-check measured, in bounds and where values must otherwise be equal.
#include "analysis/bounds/irreproducible.h"

#include "analysis/diff.h"
#include "analysis/golden_wording.h"
#include "analysis/trace_builder.h"
#include "support/temporary_directory.h"

#include <ttrace/error.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

namespace ttrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::kFirst;
using testing::kSecond;
using testing::noise_row;
using ::testing::StartsWith;
using testing::TemporaryDirectory;
using testing::TraceBuilder;
using testing::wavy;

constexpr double kOff = 1e-3;  // of the second run of the reference

std::vector<double> moved(double by) {
  std::vector<double> values = wavy(8);
  values[0] += by;
  return values;
}

// A reference that reproduces `b` and not `a`, and a candidate of two ranks that hold both whole.
class SelfChecked : public ::testing::Test {
 protected:
  SelfChecked() { reference_.add(0, {kFirst, wavy(8)}).add(0, {kSecond, wavy(8)}); }

  Report run() {
    const Trace reference = reference_.write();
    testing::write_noise_passes(directory_ / "reference",
                                {noise_row(kFirst, noise_, noise_), noise_row(kSecond, 0, 0)});
    write_noise(directory_ / "reference",
                {kSelfCheckSeed, {noise_row(kFirst, kOff, kOff), noise_row(kSecond, 0, 0)}});
    return diff(reference, candidate_.write());
  }
  // The report on ranks whose first elements are `a` and `b` apart.
  Report run_apart(double a, double b) {
    candidate_.add(0, {kFirst, wavy(8)}).add(1, {kFirst, moved(a)});
    candidate_.add(0, {kSecond, wavy(8)}).add(1, {kSecond, moved(b)});
    return run();
  }
  static std::string first_of(const Report& report) {
    return report.diverged() ? to_string(report.tensors[*report.first_divergence].id) : "none";
  }

  double noise_ = 0.0;  // of five passes, for `a`
  TemporaryDirectory directory_;
  TraceBuilder reference_{directory_ / "reference", "reference"};
  TraceBuilder candidate_{directory_ / "candidate", "candidate", 2};
};

// Ranks that compute the same tensor with atomic additions differed in a clean run.
TEST_F(SelfChecked, CopiesOfWhatTheReferenceDoesNotReproduceMayDifferByAsMuch) {
  EXPECT_EQ(first_of(run_apart(1.5 * kOff, 0.0)), "none");
}

TEST_F(SelfChecked, CopiesThatDifferByMoreAreAFinding) {
  const Report report = run_apart(5.0 * kOff, 0.0);
  EXPECT_EQ(first_of(report), kFirst);
  EXPECT_EQ(report.tensors[*report.first_divergence].symptom(), Symptom::kReplicasDisagree);
}

// An element of the losses of two ranks was 1.6e-7 apart, where the reference's second run was off
// by 4.3e-8 as a whole, and noise passes by 3.1e-7.
TEST_F(SelfChecked, NoisePassesShowAsWellHowFarCopiesMayBeApart) {
  noise_ = 5.0 * kOff;
  EXPECT_EQ(first_of(run_apart(3.0 * kOff, 0.0)), "none");
}

TEST_F(SelfChecked, CopiesOfWhatComesBeforeMustBeEqual) {
  reference_ = TraceBuilder(directory_ / "reference", "reference");
  reference_.add(0, {kSecond, wavy(8)}).add(0, {kFirst, wavy(8)});
  EXPECT_EQ(first_of(run_apart(0.0, 1e-6)), kSecond);
}

// A parameter moved by one unit in the last place in one run of many, and not in the second one.
TEST_F(SelfChecked, CopiesOfWhatComesAfterMayFlipInTheLastPlace) {
  EXPECT_EQ(first_of(run_apart(0.0, 1e-7)), "none");
}

TEST_F(SelfChecked, CopiesOfWhatComesAfterMustBeEqualOtherwise) {
  EXPECT_EQ(first_of(run_apart(0.0, 1e-5)), kSecond);
}

TEST_F(SelfChecked, RecomputedValuesMayDifferFromTheFirstByAsMuch) {
  candidate_.add_everywhere({kFirst, wavy(8)}).add_everywhere({kSecond, wavy(8)});
  candidate_.add_everywhere({"s0/m0/output/a/0~", moved(1.5 * kOff)});
  candidate_.add_everywhere({"s0/m0/output/b/0~", moved(1e-5)});
  EXPECT_EQ(first_of(run()), "s0/m0/output/b/0~");
}

TEST_F(SelfChecked, ReferenceThatRecomputesWithoutReproducingIsNoContradiction) {
  reference_.add(0, {"s0/m0/output/a/0~", moved(kOff)});
  candidate_.add_everywhere({kFirst, wavy(8)}).add_everywhere({kSecond, wavy(8)});
  EXPECT_EQ(first_of(run()), "none");
  std::filesystem::remove_all(directory_ / "reference/noise");
  const Trace alone = Trace::open(directory_ / "reference");
  const Trace candidate = Trace::open(directory_ / "candidate");
  try {
    static_cast<void>(diff(alone, candidate));
    FAIL() << "accepted";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.message(), HasSubstr("`ttrace check --self-check`"));
  }
}

// All noise passes gave the same bits, so the tensor had to be equal, and was not.
TEST_F(SelfChecked, NoiseIsAtLeastWhatTheReferenceDoesAlone) {
  candidate_.add_everywhere({kFirst, moved(1.5 * kOff)}).add_everywhere({kSecond, wavy(8)});
  const Report report = run();
  EXPECT_EQ(first_of(report), "none");
  const Check& whole = *report.tensors.front().find(Question::kWhole);
  EXPECT_EQ(whole.components.front().component, Component::kIrreproducible);
  EXPECT_DOUBLE_EQ(whole.components.front().squared, kOff * kOff);
}

TEST_F(SelfChecked, NoiseThatIsLargerStays) {
  noise_ = 5.0 * kOff;
  candidate_.add_everywhere({kFirst, wavy(8)}).add_everywhere({kSecond, wavy(8)});
  const Report report = run();
  const Check& whole = *report.tensors.front().find(Question::kWhole);
  EXPECT_EQ(whole.components.front().component, Component::kNoise);
  EXPECT_DOUBLE_EQ(whole.components.front().squared, noise_ * noise_);
}

TEST_F(SelfChecked, ReportSaysHowManyTensorsAndNamesTheFirst) {
  EXPECT_THAT(run_apart(0.0, 0.0).notes,
              ElementsAre(StartsWith("self-check: a second run of the reference did not reproduce "
                                     "1 of 2 tensors; the first is s0/m0/output/a/0, off by ")));
}

TEST(Irreproducible, TensorsThatASecondRunMadeNonFiniteCount) {
  const Irreproducible none(NoisePass{kSelfCheckSeed, {noise_row(kFirst, 0, 0)}}, {});
  EXPECT_EQ(none.find(parse_tensor_id(kFirst)), nullptr);
  EXPECT_WORDING(none.sentence());
  NoiseRow nan = noise_row(kSecond, 0, 0);
  nan.nonfinite = 1;
  const Irreproducible some(NoisePass{kSelfCheckSeed, {nan}}, {});
  EXPECT_NE(some.find(parse_tensor_id(kSecond)), nullptr);
}

}  // namespace
}  // namespace ttrace
