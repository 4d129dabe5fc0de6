// What no check says anything of, and what a verdict says then.
#include "analysis/checks/unjudged.h"

#include "analysis/diff.h"
#include "analysis/reports/finding_text.h"
#include "analysis/trace_builder.h"
#include "support/temporary_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

namespace ttrace {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::noise_row;
using testing::off;
using testing::scaled;
using ::testing::StartsWith;
using testing::TemporaryDirectory;
using testing::TraceBuilder;
using testing::wavy;

const std::string kInput = "s0/m0/input/model/0";
const std::string kA = "s0/m0/output/a/0";
const std::string kB = "s0/m0/output/b/0";
const std::string kGrad = "s0/m0/param_grad/b.bias/0";
constexpr double kSmall = 1e-6;  // noise

std::vector<double> nan_of(std::size_t count) {
  return std::vector<double>(count, std::nan(""));
}

// An input, two outputs and a gradient on one device and on two ranks; all equal, unless a test
// changes it.
class Unjudged : public ::testing::Test {
 protected:
  void both(const std::string& id, const std::vector<double>& values) { add(id, values, values); }
  void add(const std::string& id,
           const std::vector<double>& reference,
           const std::vector<double>& candidate,
           double noise = kSmall) {
    reference_.add(0, {id, reference});
    candidate_.add_everywhere({id, candidate});
    noise_.push_back(noise_row(id, noise, noise));
  }
  Report run(const DiffOptions& options = {}) {
    const Trace reference = reference_.write();
    testing::write_noise_passes(directory_ / "reference", noise_);
    return diff(reference, candidate_.write(), options);
  }
  static std::vector<std::string> lines(const Report& report) { return lines_of(report.not_seen); }

  TemporaryDirectory directory_;
  TraceBuilder reference_{directory_ / "reference", "reference"};
  TraceBuilder candidate_{directory_ / "candidate", "candidate", 2};
  std::vector<NoiseRow> noise_;
};

// Symptom: both programs computed NaN from the first tensor on, the candidate's loss was seven
// times too large, and the report said CLEAN, 26 of 26 tensors.
TEST_F(Unjudged, WhatIsNanThroughoutOnBothSidesIsNoVerdict) {
  reference_.add(0, {"s0/param/b.bias/0", {1, 2}});
  candidate_.add_everywhere({"s0/param/b.bias/0", {1, 2}});
  for (const std::string& id : {kInput, kA, kB, kGrad}) {
    both(id, nan_of(4));
  }
  const Report report = run();
  EXPECT_EQ(report.why_not_judged(), "no tensor of the forward could be judged");
  EXPECT_EQ(headline(report),
            "NOT JUDGED: no tensor of the forward could be judged; 4 of 5 tensors are not finite "
            "on both sides and were not compared");
  EXPECT_THAT(lines(report),
              ElementsAre("values (both): 4 of 5 tensors are not finite on both sides and were not "
                          "compared; the first is " +
                          kInput));
  EXPECT_EQ(report.counts().judged, 1U);
}

TEST_F(Unjudged, OneTensorOfNanLeavesTheOthersJudged) {
  both(kInput, wavy(4));
  both(kA, nan_of(4));
  both(kB, wavy(4));
  const Report clean = run();
  EXPECT_EQ(headline(clean),
            "CLEAN: 2 of 3 tensors judged; 1 of 3 tensors is not finite on both sides and "
            "was not compared");
  EXPECT_EQ(clean.tensors[1].status(), Status::kNotJudged);
}

TEST_F(Unjudged, BesideATensorOfNanAWrongOneIsStillFound) {
  both(kA, nan_of(4));
  add(kB, wavy(4), scaled(wavy(4), 1.1));
  const Report report = run();
  ASSERT_TRUE(report.diverged());
  EXPECT_EQ(to_string(report.tensors[*report.first_divergence].id), kB);
  EXPECT_EQ(report.why_not_judged(), "");
}

TEST_F(Unjudged, NanInPartsLeavesTheOtherElementsCompared) {
  std::vector<double> some = wavy(8);
  some[3] = std::nan("");
  add(kA, some, some, 0.0);
  Report report = run();
  EXPECT_EQ(headline(report), "CLEAN: 1 of 1 tensor judged");
  EXPECT_THAT(lines(report),
              ElementsAre("values (both): 1 of 1 tensor has NaN at the same places on both sides; "
                          "only the other elements were compared; the first is " +
                          kA));
}

// Masks of attention are full of them.
TEST_F(Unjudged, InfinitiesAtTheSamePlacesAreEqualNumbers) {
  both(kA, {0, 0, -testing::kInf, 0});
  EXPECT_THAT(lines(run()), IsEmpty());
}

TEST_F(Unjudged, AFiniteRunIsJudgedAsAWhole) {
  both(kInput, wavy(4));
  add(kA, wavy(4), off(wavy(4), 1e-7, 0.3));
  const Report report = run();
  EXPECT_EQ(headline(report), "CLEAN: 2 of 2 tensors judged");
  EXPECT_THAT(lines(report), IsEmpty());
}

// Symptom: noise was as large as the tensor, so that a candidate with any values was within bound.
TEST_F(Unjudged, ABoundBeyondTheTensorsOwnNormJudgesNothing) {
  both(kA, wavy(4));
  add(kGrad, wavy(4), wavy(4, 1.0), 100.0);
  const Report report = run();
  EXPECT_EQ(report.tensors[1].status(), Status::kNotJudged);
  EXPECT_EQ(headline(report), "CLEAN: 1 of 2 tensors judged");
  EXPECT_THAT(lines(report),
              ElementsAre("values (both): 1 of 2 tensors is not judged, because round-off explains "
                          "an error as large as the tensor itself; the first is " +
                          kGrad));
}

TEST_F(Unjudged, AnErrorBeyondSuchABoundIsStillFound) {
  both(kA, wavy(4));
  add(kGrad, wavy(4), scaled(wavy(4), 1e6), 100.0);
  EXPECT_TRUE(run().diverged());
}

TEST_F(Unjudged, WhatIsEqualNeedsNoBound) {
  add(kA, wavy(4), wavy(4), 100.0);
  EXPECT_EQ(headline(run()), "CLEAN: 1 of 1 tensor judged");
}

// Symptom: a program that drew its inputs anew in every run was CLEAN, with the last block
// of every product dropped.
TEST_F(Unjudged, DataThatTheReferenceDoesNotRepeatMakeNoVerdict) {
  add(kInput, wavy(8), wavy(8, 2.0), 10.0);
  add(kA, wavy(8), wavy(8, 2.0), 10.0);
  add(kB, wavy(8), wavy(8, 2.0), kSmall);
  const Report report = run();
  EXPECT_FALSE(report.diverged());
  EXPECT_THAT(headline(report),
              StartsWith("NOT JUDGED: the runs do not read the same data, and the reference does "
                         "not repeat its own (" +
                         kInput + "); seed what the programs draw"));
  for (const TensorVerdict& tensor : report.tensors) {
    EXPECT_FALSE(tensor.is_finding()) << to_string(tensor.id);
  }
}

TEST_F(Unjudged, OtherDataOfAReferenceThatRepeatsItsOwnAreAFinding) {
  add(kInput, wavy(8), wavy(8, 2.0), kSmall);
  const Report report = run();
  ASSERT_TRUE(report.diverged());
  EXPECT_EQ(to_string(report.tensors[*report.first_divergence].id), kInput);
}

TEST_F(Unjudged, OneDeviceOnBothSidesIsSaid) {
  reference_.add(0, {kA, wavy(4)});
  const Trace reference = reference_.write();
  EXPECT_THAT(lines(diff(reference, reference)),
              ElementsAre("parallel (both): both programs run on one device"));
  candidate_.add_everywhere({kA, wavy(4)});
  EXPECT_THAT(lines(diff(reference, candidate_.write())), IsEmpty());
}

TEST_F(Unjudged, WhatIsRequiredAndNotSeenIsNoVerdict) {
  both(kA, wavy(4));
  candidate_.not_seen(0, NotSeenKind::kUpdates, "no optimizer");
  DiffOptions options;
  options.required = {.kinds = {NotSeenKind::kUpdates, NotSeenKind::kStart},
                      .tensors = {Kind::kMainGrad, Kind::kOutput}};
  const Report report = run(options);
  EXPECT_EQ(headline(report), "NOT JUDGED: what --require asks for was not seen");
  EXPECT_THAT(
      report.unmet,
      ElementsAre("--require updates is not met: updates (candidate): no optimizer",
                  "--require main_grad is not met: no tensor of the kind main_grad was judged"));
}

TEST_F(Unjudged, WhatIsRequiredAndSeenChangesNothing) {
  both(kA, wavy(4));
  DiffOptions options;
  options.required = {.kinds = {NotSeenKind::kUpdates}, .tensors = {Kind::kOutput}};
  const Report report = run(options);
  EXPECT_EQ(report.why_not_judged(), "");
  EXPECT_THAT(report.unmet, IsEmpty());
}

// Symptom: a candidate in BF16 under autocast had 217 findings "its element type is bf16, but f32
// in the reference", and the header said f32 of both.
TEST_F(Unjudged, AnotherPrecisionIsOneSentence) {
  for (const std::string& id : {kA, kB}) {
    reference_.add(0, {id, wavy(4), ElementType::kF32});
    candidate_.add_everywhere({id, wavy(4), ElementType::kBF16});
    noise_.push_back(noise_row(id, kSmall, kSmall));
  }
  const Report report = run();
  const std::string sentence =
      "the candidate computes in bf16, the reference in f32 (2 tensors have another type): give "
      "both the same policy";
  ASSERT_TRUE(report.diagnosis.has_value());
  EXPECT_EQ(report.diagnosis->sentence, sentence);
  EXPECT_THAT(report.remarks, Contains(sentence));
  EXPECT_EQ(precision_text(report.candidate), "parameters f32, activations bf16");
  EXPECT_EQ(precision_text(report.reference), "f32");
}

}  // namespace
}  // namespace ttrace
