// Findings that are their own cause, and layers that took one another's places.
#include "analysis/diagnosis/diagnosis_fixture.h"
#include "analysis/golden_wording.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>

namespace ttrace {
namespace {

using namespace testing;
using ::testing::AllOf;
using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class SymptomDiagnosis : public DiagnosisTest {};

TEST_F(SymptomDiagnosis, InfinitiesOfAllCopiesAreAnOverflow) {
  const Matrix values = random_values(64, 1);
  Matrix wrong = values;
  wrong[7] = std::numeric_limits<double>::infinity();
  add_reference("s0/m0/output/a/0", values, {8, 8});
  add_candidate("s0/m0/output/a/0", wrong, {8, 8});
  const Diagnosis found = diagnosis("s0/m0/output/a/0");
  EXPECT_EQ(found.signature, Signature::kNonFinite);
  EXPECT_WORDING(found.sentence);
}

TEST_F(SymptomDiagnosis, AnIllegalFlipNamesTheTokenAndItsExperts) {
  const std::string choices = "s0/m0/routing/decoder.layers.0.mlp.router/0";
  const std::string margins = "s0/m0/routing/decoder.layers.0.mlp.router/1";
  reference_.add(0, {choices, {0, 1, 2, 3, 4, 5, 6, 7}, ElementType::kI64, {4, 2}})
      .add(0, {margins, {0.5, 0.5, 0.5, 0.5}});
  candidate_.add_everywhere({choices, {0, 1, 2, 7, 4, 5, 6, 7}, ElementType::kI64, {4, 2}})
      .add_everywhere({margins, {0.5, 0.3, 0.5, 0.5}});
  noise_.push_back(noise_row(margins, 0.02, 0.01));
  const Diagnosis found = diagnosis(choices);
  EXPECT_EQ(found.signature, Signature::kRoutingFlip);
  EXPECT_WORDING(found.sentence);
}

TEST_F(SymptomDiagnosis, ARecomputedMaskThatDiffersAccusesTheRandomNumbers) {
  const Matrix first = {1, 0, 1, 1, 0, 1, 0, 0};
  const Matrix again = {0, 1, 1, 0, 0, 1, 1, 0};
  reference_.add(0, {"s0/m0/draw/dropout/0", first, ElementType::kBool, {8}});
  candidate_.add_everywhere({"s0/m0/draw/dropout/0", first, ElementType::kBool, {8}});
  candidate_.add_everywhere({"s0/m0/draw/dropout/0~", again, ElementType::kBool, {8}});
  const Diagnosis found = diagnosis("s0/m0/draw/dropout/0~");
  EXPECT_EQ(found.signature, Signature::kRecompute);
  EXPECT_WORDING(found.sentence);
}

// Symptom: a second forward that multiplied by another number was a wrong factor where both
// programs recomputed, and not recomputed right where the candidate alone did.
TEST_F(SymptomDiagnosis, AFactorOfASecondForwardAloneIsDueToTheSecondForward) {
  const Matrix values = random_values(64, 1);
  add_both("s0/m0/output/a/0", values, {8, 8});
  add_reference("s0/m0/output/a/0~", values, {8, 8});
  add_candidate("s0/m0/output/a/0~", scaled(values, 1.1), {8, 8});
  const Diagnosis found = diagnosis("s0/m0/output/a/0~");
  EXPECT_EQ(found.signature, Signature::kRecompute);
  EXPECT_WORDING(found.sentence);
  EXPECT_THAT(found.named.factors, ElementsAre(DoubleNear(1.1, 1e-6)));
}

TEST_F(SymptomDiagnosis, OtherTokensAreASource) {
  const Tensor tokens{
      "s0/m0/data/tokens/0", {7, 3, 5, 3, 9, 11, 4, 3, 2, 6, 1, 8}, ElementType::kI64, {3, 4}};
  Tensor others = tokens;
  others.values = {1, 2, 8, 9, 3, 3, 7, 5, 12, 2, 4, 1};
  reference_.add(0, tokens);
  candidate_.add_everywhere(others);
  const Diagnosis found = diagnosis("s0/m0/data/tokens/0");
  EXPECT_EQ(found.signature, Signature::kSource);
  EXPECT_WORDING(found.sentence);
}

// Symptom: "its operators are wrong: given the candidate's own inputs", of what the model is given.
TEST_F(SymptomDiagnosis, OtherInputsOfTheModelAreASource) {
  const std::string input = "s0/m0/input/model/0";
  add_reference(input, random_values(64, 1), {8, 8});
  add_candidate(input, random_values(64, 2), {8, 8});
  add_both("s0/m0/output/fc/0", random_values(64, 3), {8, 8});
  const Diagnosis found = diagnosis(input);
  EXPECT_EQ(found.signature, Signature::kSource);
  EXPECT_WORDING(found.sentence);
}

TEST_F(SymptomDiagnosis, ALayerThatHoldsAnotherOnesValuesIsNamed) {
  const Matrix first = random_values(64, 1);
  const Matrix second = random_values(64, 2);
  add_reference("s0/m0/output/decoder.layers.0.mlp/0", first, {8, 8});
  add_reference("s0/m0/output/decoder.layers.1.mlp/0", second, {8, 8});
  add_candidate("s0/m0/output/decoder.layers.0.mlp/0", second, {8, 8});
  add_candidate("s0/m0/output/decoder.layers.1.mlp/0", first, {8, 8});
  const Diagnosis found = diagnosis("s0/m0/output/decoder.layers.0.mlp/0");
  EXPECT_EQ(found.signature, Signature::kWrongLayer);
  EXPECT_WORDING(found.sentence);
}

// Symptom: the last stage of a pipeline took the activation of the micro-batch before, and no cause
// was named.
TEST_F(SymptomDiagnosis, AMessageThatIsTheOneBeforeIsStale) {
  add_both(kOutput, random_values(64, 1), {8, 8});
  for (const std::uint32_t microbatch : {0U, 1U}) {
    const std::string place = "s0/m" + std::to_string(microbatch);
    candidate_.add(0, {place + "/sent/stage/0", random_values(64, 2 + microbatch)});
    candidate_.add(1, {place + "/received/stage/0", random_values(64, 2)});
  }
  const Diagnosis found = diagnosis("s0/m1/received/stage/0");
  EXPECT_EQ(found.signature, Signature::kStale);
  EXPECT_WORDING(found.sentence);
  EXPECT_THAT(found.named.microbatches, ElementsAre(0));
}

// Symptom: 257 rows cut over four ranks leave the last one only padding, which never changes, and a
// wrong learning rate was "stale" there.
TEST_F(SymptomDiagnosis, PaddingThatStaysAsItIsIsNotStale) {
  const Matrix before = random_values(32, 1);
  const Matrix move = random_values(32, 2);
  add_reference("s0/param/w/0", before, {4, 8});
  add_reference("s0/param_next/w/0", sum(before, move), {4, 8});
  const Placement first{{{4, 4, {{0, 0, 4}}}, all(8)}, 0, 1, "", 1.0};
  const Placement padding{{{4, 4, {}}, all(8)}, 0, 1, "", 1.0};
  const Matrix wrong = sum(sum(before, move), move);
  candidate_.add(0, {"s0/param/w/0", before, ElementType::kF32, {4, 8}, first})
      .add(0, {"s0/param_next/w/0", wrong, ElementType::kF32, {4, 8}, first})
      .add(1, {"s0/param/w/0", Matrix(32, 0.0), ElementType::kF32, {4, 8}, padding})
      .add(1, {"s0/param_next/w/0", Matrix(32, 0.0), ElementType::kF32, {4, 8}, padding});
  const Report report = report_of_run();
  EXPECT_TRUE(report.diverged());
  EXPECT_TRUE(!report.diagnosis || report.diagnosis->signature != Signature::kStale);
}

// Symptom: the same on a rank whose rows the step moves in neither program.
TEST_F(SymptomDiagnosis, RowsThatTheReferenceDoesNotMoveAreNotStale) {
  const Matrix before = random_values(64, 1);
  Matrix move = random_values(64, 2);
  std::fill(move.begin() + 32, move.end(), 0.0);
  const Matrix wrong = sum(sum(before, move), move);
  add_reference("s0/param/w/0", before, {8, 8});
  add_reference("s0/param_next/w/0", sum(before, move), {8, 8});
  for (const int rank : {0, 1}) {
    const Placement half{{share(8, rank, 2), all(8)}, 0, 1, "", 1.0};
    const auto row = static_cast<std::size_t>(rank * 4);
    candidate_
        .add(rank,
             {"s0/param/w/0", rows_of(before, 8, row, row + 4), ElementType::kF32, {4, 8}, half})
        .add(rank,
             {"s0/param_next/w/0",
              rows_of(wrong, 8, row, row + 4),
              ElementType::kF32,
              {4, 8},
              half});
  }
  const Report report = report_of_run();
  EXPECT_TRUE(report.diverged());
  EXPECT_TRUE(!report.diagnosis || report.diagnosis->signature != Signature::kStale);
}

}  // namespace
}  // namespace ttrace
