// Every test plants one cause in a candidate and reads what the report names.
#include "analysis/diagnosis/diagnosis_fixture.h"
#include "analysis/golden_wording.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace ttrace {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using namespace testing;

TEST_F(DiagnosisTest, AFactorIsFittedAndNamedByTheAxisThatHasItsSize) {
  const Matrix values = random_values(64, 1);
  add_both("s0/m0/output/a/0", random_values(64, 2), {8, 8});
  add_reference("s0/m0/output/b/0", values, {8, 8});
  add_candidate("s0/m0/output/b/0", scaled(values, 0.5), {8, 8});
  const Diagnosis found = diagnosis("s0/m0/output/b/0");
  EXPECT_EQ(found.signature, Signature::kWrongFactor);
  EXPECT_WORDING(found.sentence);
}

TEST_F(DiagnosisTest, AFactorWithoutMeaningIsGivenAsANumber) {
  const Matrix values = random_values(64, 1);
  add_reference("s0/m0/output/b/0", values, {8, 8});
  add_candidate("s0/m0/output/b/0", scaled(values, 1.3), {8, 8});
  EXPECT_WORDING(diagnosis("s0/m0/output/b/0").sentence);
}

// A gradient that was never accumulated was called "1.110e-16 (2^-53, a loss scale) x reference".
TEST_F(DiagnosisTest, ACandidateOfZerosIsZeroTimesTheReference) {
  const Matrix values = random_values(64, 1);
  add_reference("s0/main_grad/w/0", values, {8, 8});
  add_candidate("s0/main_grad/w/0", scaled(values, 0.0), {8, 8});
  EXPECT_WORDING(diagnosis("s0/main_grad/w/0").sentence);
}

// Seen where a router read its input before the norm: logits near zero were called 0.03 times the
// reference's.
TEST_F(DiagnosisTest, ACandidateNearZeroIsNoMultipleOfTheReference) {
  const Matrix values = random_values(512, 1);
  add_reference("s0/m0/output/router/0", values, {8, 64});
  add_candidate("s0/m0/output/router/0", random_values(512, 2, 0.04), {8, 64});
  const Report report = report_of_run();
  EXPECT_TRUE(report.diverged());
  EXPECT_FALSE(report.diagnosis.has_value()) << report.diagnosis->sentence;
}

// Seen where the loss of all tokens grew by one number, and the loss of an untrained model is
// nearly the same for all.
TEST_F(DiagnosisTest, ANumberAddedToNearlyEqualElementsIsNoFactor) {
  const Matrix values = sum(random_values(512, 1, 0.1), {5.5});
  add_reference("s0/m0/loss/loss/0", values, {8, 64});
  add_candidate("s0/m0/loss/loss/0", sum(values, {0.3}), {8, 64});
  EXPECT_EQ(diagnosis("s0/m0/loss/loss/0").signature, Signature::kConstantBias);
}

TEST_F(DiagnosisTest, ALossScaleThatWasNotRemovedIsNamed) {
  const Matrix values = random_values(64, 1);
  add_reference("s0/main_grad/w/0", values, {8, 8});
  add_candidate("s0/main_grad/w/0", scaled(values, 65536), {8, 8});
  EXPECT_WORDING(diagnosis("s0/main_grad/w/0").sentence);
}

TEST_F(DiagnosisTest, ABiasAddedOnEveryRankIsCounted) {
  const Matrix values = random_values(64, 1);
  const Matrix bias = random_values(8, 2);
  add_both("s0/param/fc2.bias/0", bias, {8});
  add_reference("s0/m0/output/fc2/0", values, {8, 8});
  add_candidate("s0/m0/output/fc2/0", sum(values, bias), {8, 8});
  const Diagnosis found = diagnosis("s0/m0/output/fc2/0");
  EXPECT_EQ(found.signature, Signature::kRepeatedBias);
  EXPECT_WORDING(found.sentence);
}

TEST_F(DiagnosisTest, ASumReducedTwiceIsSeenWithoutItsBias) {
  const Matrix values = random_values(64, 1);
  const Matrix bias = random_values(8, 2);
  add_both("s0/param/fc2.bias/0", bias, {8});
  add_reference("s0/m0/output/fc2/0", values, {8, 8});
  add_candidate("s0/m0/output/fc2/0", sum(scaled(values, 2.0), bias, -1.0), {8, 8});
  const Diagnosis found = diagnosis("s0/m0/output/fc2/0");
  EXPECT_EQ(found.signature, Signature::kRepeatedReduction);
  EXPECT_WORDING(found.sentence);
}

TEST_F(DiagnosisTest, CopiesThatAddUpToTheReferenceWereNeverReduced) {
  const Matrix left = random_values(64, 1);
  const Matrix right = random_values(64, 2);
  add_reference("s0/m0/grad_output/norm/0", sum(left, right), {8, 8});
  candidate_.add(0, {"s0/m0/grad_output/norm/0", left, ElementType::kF32, {8, 8}});
  candidate_.add(1, {"s0/m0/grad_output/norm/0", right, ElementType::kF32, {8, 8}});
  const Diagnosis found = diagnosis("s0/m0/grad_output/norm/0");
  EXPECT_EQ(found.signature, Signature::kMissingReduction);
  EXPECT_WORDING(found.sentence);
}

// Seen where expert gradients were not summed over ranks that differ on an axis of dense parameters
// and on one of experts: "replicas diverge", because no two ranks differ on one axis alone.
TEST_F(DiagnosisTest, CopiesThatLieApartOnTwoAxesAtOnceAddUpAsWell) {
  candidate_.add_axis("ecp");
  const Matrix left = random_values(64, 1);
  const Matrix right = random_values(64, 2);
  add_reference("s0/main_grad/expert/0", sum(left, right), {8, 8});
  candidate_.add(0, {"s0/main_grad/expert/0", left, ElementType::kF32, {8, 8}});
  candidate_.add(1, {"s0/main_grad/expert/0", right, ElementType::kF32, {8, 8}});
  const Diagnosis found = diagnosis("s0/main_grad/expert/0");
  EXPECT_EQ(found.signature, Signature::kMissingReduction);
  EXPECT_WORDING(found.sentence);
}

// Seen where ranks above 0 routed by logits near zero: added up with rank 0's right ones they were
// "the reference".
TEST_F(DiagnosisTest, ARightCopyBesideOneNearZeroIsNoAddend) {
  const Matrix values = random_values(64, 1);
  add_reference("s0/m0/output/router/0", values, {8, 8});
  candidate_.add(0, {"s0/m0/output/router/0", values, ElementType::kF32, {8, 8}});
  candidate_.add(1,
                 {"s0/m0/output/router/0", random_values(64, 2, 0.03), ElementType::kF32, {8, 8}});
  EXPECT_EQ(diagnosis("s0/m0/output/router/0").signature, Signature::kReplicasDiverge);
}

TEST_F(DiagnosisTest, CopiesThatDifferWithoutPatternAreOnlyNamed) {
  const Matrix values = random_values(64, 1);
  add_reference("s0/m0/output/norm/0", values, {8, 8});
  candidate_.add(0, {"s0/m0/output/norm/0", values, ElementType::kF32, {8, 8}});
  candidate_.add(1, {"s0/m0/output/norm/0", random_values(64, 5), ElementType::kF32, {8, 8}});
  EXPECT_EQ(diagnosis("s0/m0/output/norm/0").signature, Signature::kReplicasDiverge);
}

TEST_F(DiagnosisTest, CopiesWithinTheBoundOfTheReferenceStillDiverge) {
  const Matrix values = random_values(64, 1);
  add_reference("s0/m0/output/norm/0", values, {8, 8});
  candidate_.add(0, {"s0/m0/output/norm/0", values, ElementType::kF32, {8, 8}});
  candidate_.add(1, {"s0/m0/output/norm/0", scaled(values, 1.00001), ElementType::kF32, {8, 8}});
  const Diagnosis found = diagnosis("s0/m0/output/norm/0");
  EXPECT_EQ(found.signature, Signature::kReplicasDiverge);
  EXPECT_WORDING(found.sentence);
}

// A row-parallel linear: x [8, 6] and w [5, 6] cut in the inner dimension.
class RowParallelDiagnosis : public DiagnosisTest {
 protected:
  static constexpr const char* kOutput = "s0/m0/output/fc2/0";

  void SetUp() override {
    add_reference("s0/param/fc2.weight/0", w_, {16, 6});
    add_both("s0/param/fc2.bias/0", bias_, {16});
    add_reference("s0/m0/output/act/0", x_, {16, 6});
    add_reference(kOutput, sum(sum(addend(0), addend(1)), bias_), {16, 16});
    for (int rank = 0; rank < 2; ++rank) {
      const auto first = static_cast<std::size_t>(rank) * 3;
      candidate_.add(rank,
                     {"s0/param/fc2.weight/0",
                      columns_of(w_, 6, first, first + 3),
                      ElementType::kF32,
                      {16, 3},
                      Placement{{all(16), share(6, rank, 2)}, 0, 1, "", 1.0}});
      candidate_.add(rank,
                     {"s0/m0/output/act/0",
                      columns_of(x_, 6, first, first + 3),
                      ElementType::kF32,
                      {16, 3},
                      Placement{{all(16), share(6, rank, 2)}, 0, 1, "", 1.0}});
    }
  }
  [[nodiscard]] Matrix addend(std::size_t rank) const {
    return product(x_, w_, 6, rank * 3, rank * 3 + 3);
  }
  // Each rank holds its rows, as under sequence parallelism.
  void add_rows(const Matrix& first, const Matrix& second) {
    candidate_.add(0,
                   {kOutput,
                    rows_of(first, 16, 0, 8),
                    ElementType::kF32,
                    {8, 16},
                    Placement{{share(16, 0, 2), all(16)}, 0, 1, "", 1.0}});
    candidate_.add(1,
                   {kOutput,
                    rows_of(second, 16, 8, 16),
                    ElementType::kF32,
                    {8, 16},
                    Placement{{share(16, 1, 2), all(16)}, 0, 1, "", 1.0}});
  }

  Matrix x_ = random_values(96, 1);
  Matrix w_ = random_values(96, 2);
  Matrix bias_ = random_values(16, 3);
};

TEST_F(RowParallelDiagnosis, AMissingReduceScatterIsSeenInRecomputedAddends) {
  add_rows(sum(addend(0), bias_), sum(addend(1), bias_));
  const Diagnosis found = diagnosis(kOutput);
  EXPECT_EQ(found.signature, Signature::kMissingReduction);
  EXPECT_WORDING(found.sentence);
}

TEST_F(RowParallelDiagnosis, ARankCountedTwiceIsSeenInRecomputedAddends) {
  const Matrix wrong = sum(sum(sum(addend(0), addend(1)), addend(1)), bias_);
  add_rows(wrong, wrong);
  const Diagnosis found = diagnosis(kOutput);
  EXPECT_EQ(found.signature, Signature::kWrongAddends);
  EXPECT_WORDING(found.sentence);
}

// Four micro-batches, two on each rank.
class MainGradDiagnosis : public DiagnosisTest {
 protected:
  static constexpr const char* kMainGrad = "s0/main_grad/w/0";

  MainGradDiagnosis() : dp_candidate_(directory_ / "candidate", "candidate", 2, "dp") {
    for (std::uint32_t m = 0; m < 4; ++m) {
      gradients_.push_back(random_values(64, 10 + m));
      add_reference("s0/m" + std::to_string(m) + "/param_grad/w/0", gradients_.back(), {8, 8});
    }
    add_reference(kMainGrad, of({1, 1, 1, 1}), {8, 8});
  }
  [[nodiscard]] Matrix of(const std::vector<double>& coefficients) const {
    Matrix total(64);
    for (std::size_t m = 0; m < 4; ++m) {
      total = sum(total, gradients_[m], coefficients[m]);
    }
    return total;
  }
  void add_gradient(int microbatch) {
    const auto m = static_cast<std::size_t>(microbatch);
    dp_candidate_.add(microbatch % 2,
                      {"s0/m" + std::to_string(microbatch) + "/param_grad/w/0",
                       gradients_[m],
                       ElementType::kF32,
                       {8, 8}});
  }
  Diagnosis when_held(const Matrix& first, const Matrix& second) {
    for (int m = 0; m < 4; ++m) {
      add_gradient(m);
    }
    dp_candidate_.add(0, {kMainGrad, first, ElementType::kF32, {8, 8}});
    dp_candidate_.add(1, {kMainGrad, second, ElementType::kF32, {8, 8}});
    return of_report();
  }
  // The upper or lower rows of an 8 x 8 tensor.
  static Tensor half_of(const std::string& id, const Matrix& values, int rank) {
    const auto first = static_cast<std::size_t>(rank) * 4;
    return {id,
            rows_of(values, 8, first, first + 4),
            ElementType::kF32,
            {4, 8},
            Placement{{share(8, rank, 2), all(8)}, 0, 1, "", 1.0}};
  }
  Diagnosis of_report() {
    static_cast<void>(reference_.write());
    testing::write_noise_passes(directory_ / "reference", noise_);
    const Report report = diff(Trace::open(directory_ / "reference"), dp_candidate_.write());
    EXPECT_EQ(to_string(report.tensors.at(report.first_divergence.value()).id), kMainGrad);
    return report.diagnosis.value();
  }

  TraceBuilder dp_candidate_;
  std::vector<Matrix> gradients_;
};

TEST_F(MainGradDiagnosis, AMissingDataParallelReductionLeavesEveryRankItsOwnMicrobatches) {
  const Diagnosis found = when_held(of({1, 0, 1, 0}), of({0, 1, 0, 1}));
  EXPECT_EQ(found.signature, Signature::kMissingReduction);
  EXPECT_WORDING(found.sentence);
}

TEST_F(MainGradDiagnosis, ADroppedMicrobatchIsNumbered) {
  const Diagnosis found = when_held(of({1, 1, 0, 1}), of({1, 1, 0, 1}));
  EXPECT_EQ(found.signature, Signature::kMissingMicrobatch);
  EXPECT_WORDING(found.sentence);
}

// Symptom: a micro-batch whose gradients were clipped on the way was "not in the sum".
TEST_F(MainGradDiagnosis, AMicrobatchOfWhichLittleIsLeftIsNotMissing) {
  const Diagnosis found = when_held(of({1, 1, 0.004, 1}), of({1, 1, 0.004, 1}));
  EXPECT_EQ(found.signature, Signature::kWrongAddends);
}

// If none of a vocabulary shard's tokens occur, its gradients are zero and prove nothing.
TEST_F(MainGradDiagnosis, ARankWithoutGradientsDoesNotHideTheDroppedMicrobatch) {
  for (Matrix& gradient : gradients_) {
    std::fill(gradient.begin() + 32, gradient.end(), 0.0);
  }
  reference_ = TraceBuilder(directory_ / "reference", "reference");
  for (std::size_t m = 0; m < 4; ++m) {
    const std::string id = "s0/m" + std::to_string(m) + "/param_grad/w/0";
    reference_.add(0, {id, gradients_[m], ElementType::kF32, {8, 8}});
    for (int rank = 0; rank < 2; ++rank) {
      dp_candidate_.add(rank, half_of(id, gradients_[m], rank));
    }
  }
  reference_.add(0, {kMainGrad, of({1, 1, 1, 1}), ElementType::kF32, {8, 8}});
  for (int rank = 0; rank < 2; ++rank) {
    dp_candidate_.add(rank, half_of(kMainGrad, of({1, 0, 1, 1}), rank));
  }
  const Diagnosis found = of_report();
  EXPECT_EQ(found.signature, Signature::kMissingMicrobatch);
  EXPECT_WORDING(found.sentence);
}

TEST_F(MainGradDiagnosis, AMicrobatchCountedTwiceIsASumWithWrongCoefficients) {
  const Diagnosis found = when_held(of({1, 1, 1, 2}), of({1, 1, 1, 2}));
  EXPECT_EQ(found.signature, Signature::kWrongAddends);
  EXPECT_WORDING(found.sentence);
}

TEST_F(MainGradDiagnosis, ADivisorThatIsMissingIsAFactor) {
  const Diagnosis found = when_held(of({2, 2, 2, 2}), of({2, 2, 2, 2}));
  EXPECT_EQ(found.signature, Signature::kWrongFactor);
  EXPECT_WORDING(found.sentence);
}

TEST_F(DiagnosisTest, AParameterThatKeptItsValueIsStale) {
  const Matrix before = random_values(64, 1);
  add_both("s0/param/w/0", before, {8, 8});
  add_reference("s0/param_next/w/0", sum(before, random_values(64, 2)), {8, 8});
  add_candidate("s0/param_next/w/0", before, {8, 8});
  const Diagnosis found = diagnosis("s0/param_next/w/0");
  EXPECT_EQ(found.signature, Signature::kStale);
  EXPECT_WORDING(found.sentence);
}

// Seen where the hook that updates experts' biases returned early: a bias that begins as zeros and
// stays zero was "candidate = 0 x reference".
TEST_F(DiagnosisTest, AParameterThatStaysZeroIsStale) {
  const Matrix zeros(64, 0.0F);
  add_both("s0/param/w/0", zeros, {8, 8});
  add_reference("s0/param_next/w/0", random_values(64, 2), {8, 8});
  add_candidate("s0/param_next/w/0", zeros, {8, 8});
  EXPECT_EQ(diagnosis("s0/param_next/w/0").signature, Signature::kStale);
}

TEST_F(DiagnosisTest, AMicrobatchThatHoldsAnotherOnesValueIsStale) {
  const Matrix first = random_values(64, 1);
  add_both("s0/m0/output/a/0", first, {8, 8});
  add_reference("s0/m1/output/a/0", random_values(64, 2), {8, 8});
  add_candidate("s0/m1/output/a/0", first, {8, 8});
  const Diagnosis found = diagnosis("s0/m1/output/a/0");
  EXPECT_EQ(found.signature, Signature::kStale);
  EXPECT_WORDING(found.sentence);
}

// Seen where only a rank's own half of the gathered parameters arrived: "replicas diverge".
TEST_F(DiagnosisTest, AParameterOfWhichHalfKeptItsValueIsStale) {
  const Matrix before = random_values(64, 1);
  const Matrix after = sum(before, random_values(64, 2));
  add_both("s0/param/w/0", before, {8, 8});
  add_reference("s0/param_next/w/0", after, {8, 8});
  candidate_.add(0, {"s0/param_next/w/0", after, ElementType::kF32, {8, 8}});
  Matrix half = after;
  std::copy_n(before.begin(), 32, half.begin());
  candidate_.add(1, {"s0/param_next/w/0", half, ElementType::kF32, {8, 8}});
  const Diagnosis found = diagnosis("s0/param_next/w/0");
  EXPECT_EQ(found.signature, Signature::kStale);
  EXPECT_WORDING(found.sentence);
}

// Seen where ranks scaled by the largest value of their own rows, and where a mask was cut at other
// places: a scale, or a mask of ones, that another micro-batch has as well.
TEST_F(DiagnosisTest, OneNumberThatRecursIsNotCalledStale) {
  add_both("s0/m0/scale/a/0", {0.5}, {});
  add_reference("s0/m1/scale/a/0", {0.75}, {});
  add_candidate("s0/m1/scale/a/0", {0.5}, {});
  const Report report = report_of_run();
  EXPECT_TRUE(report.diverged());
  EXPECT_FALSE(report.diagnosis.has_value());
}

TEST_F(DiagnosisTest, SwappedMicrobatchesAreSeenInTheReference) {
  const Matrix first = random_values(64, 1);
  const Matrix second = random_values(64, 2);
  add_reference("s0/m0/output/a/0", first, {8, 8});
  add_reference("s0/m1/output/a/0", second, {8, 8});
  add_candidate("s0/m0/output/a/0", second, {8, 8});
  add_candidate("s0/m1/output/a/0", first, {8, 8});
  const Diagnosis found = diagnosis("s0/m0/output/a/0");
  EXPECT_EQ(found.signature, Signature::kStale);
  EXPECT_WORDING(found.sentence);
}

TEST_F(DiagnosisTest, ShardsGatheredInTheWrongOrderAreNamedByTheirOrder) {
  const Matrix values = random_values(64, 1);
  Matrix swapped = rows_of(values, 8, 4, 8);
  const Matrix head = rows_of(values, 8, 0, 4);
  swapped.insert(swapped.end(), head.begin(), head.end());
  add_reference("s0/m0/output/qkv/0", values, {8, 8});
  add_candidate("s0/m0/output/qkv/0", swapped, {8, 8});
  const Diagnosis found = diagnosis("s0/m0/output/qkv/0");
  EXPECT_EQ(found.signature, Signature::kWrongOrder);
  EXPECT_WORDING(found.sentence);
}

TEST_F(DiagnosisTest, AShardInThePlaceOfAnotherIsToldFromASwap) {
  const Matrix values = random_values(64, 1);
  Matrix doubled = rows_of(values, 8, 0, 4);
  doubled.insert(doubled.end(), values.begin(), values.begin() + 32);
  add_reference("s0/m0/output/qkv/0", values, {8, 8});
  add_candidate("s0/m0/output/qkv/0", doubled, {8, 8});
  const Diagnosis found = diagnosis("s0/m0/output/qkv/0");
  EXPECT_EQ(found.signature, Signature::kWrongOrder);
  EXPECT_WORDING(found.sentence);
}

TEST_F(DiagnosisTest, RowsOfOneTokenThatAreZeroAreNamedByTheToken) {
  const std::vector<double> tokens = {7, 3, 5, 3, 9, 11, 4, 3, 2, 6, 1, 8, 10, 12, 13, 14};
  const Tensor data{"s0/m0/data/tokens/0", tokens, ElementType::kI64, {2, 8}};
  reference_.add(0, data);
  candidate_.add_everywhere(data);
  const Matrix values = random_values(std::size_t{16} * 64, 1);
  Matrix masked = values;
  for (std::size_t row = 0; row < 16; ++row) {
    // Rows are [s, b], tokens [b, s].
    if (tokens[row % 2 * 8 + row / 2] == 3) {
      std::fill_n(masked.begin() + static_cast<std::ptrdiff_t>(row * 64), 64, 0.0);
    }
  }
  add_reference("s0/m0/output/embedding/0", values, {8, 2, 64});
  add_candidate("s0/m0/output/embedding/0", masked, {8, 2, 64});
  const Diagnosis found = diagnosis("s0/m0/output/embedding/0");
  EXPECT_EQ(found.signature, Signature::kLocalised);
  EXPECT_WORDING(found.sentence);
}

TEST_F(DiagnosisTest, WrongColumnsOfOneRankAreNamedByTheirHolder) {
  const Matrix values = random_values(std::size_t{64} * 16, 1);
  Matrix wrong = values;
  const Matrix noise = random_values(values.size(), 9);
  for (std::size_t i = 0; i < wrong.size(); ++i) {
    wrong[i] = i % 16 >= 12 ? noise[i] : wrong[i];
  }
  add_reference("s0/m0/output/fc1/0", values, {64, 16});
  for (int rank = 0; rank < 2; ++rank) {
    const auto first = static_cast<std::size_t>(rank) * 8;
    candidate_.add(rank,
                   {"s0/m0/output/fc1/0",
                    columns_of(wrong, 16, first, first + 8),
                    ElementType::kF32,
                    {64, 8},
                    Placement{{all(64), share(16, rank, 2)}, 0, 1, "", 1.0}});
  }
  const Diagnosis found = diagnosis("s0/m0/output/fc1/0");
  EXPECT_EQ(found.signature, Signature::kLocalised);
  EXPECT_WORDING(found.sentence);
}

// Seen where last step's gradients had not been cleared: the embedding's error lay in the rows of
// the tokens at hand, and so did its gradient.
TEST_F(DiagnosisTest, AnErrorWhereAllOfTheTensorLiesIsNotLocalised) {
  Matrix values(1024);
  Matrix wrong(1024);
  const Matrix rows = random_values(128, 1);
  const Matrix more = random_values(128, 2);
  for (std::size_t i = 0; i < 128; ++i) {
    values[i] = rows[i];
    wrong[i] = rows[i] + more[i];
  }
  add_reference("s0/main_grad/embedding/0", values, {16, 64});
  add_candidate("s0/main_grad/embedding/0", wrong, {16, 64});
  const Report report = report_of_run();
  EXPECT_TRUE(report.diverged());
  EXPECT_FALSE(report.diagnosis.has_value()) << report.diagnosis->sentence;
}

TEST_F(DiagnosisTest, AnErrorThatIsEverywhereHasNoSignature) {
  const Matrix values = random_values(512, 1);
  add_reference("s0/m0/output/a/0", values, {8, 64});
  add_candidate("s0/m0/output/a/0", sum(values, random_values(512, 2), 0.1), {8, 64});
  const Report report = report_of_run();
  EXPECT_TRUE(report.diverged());
  EXPECT_FALSE(report.diagnosis.has_value()) << report.diagnosis->sentence;
}

TEST_F(DiagnosisTest, AnErrorJustBeyondItsBoundHasNoSignature) {
  const Matrix values = random_values(512, 1);
  add_reference("s0/m0/output/a/0", values, {8, 64});
  // Error 2.4e-3 against a bound of 2e-3.
  add_candidate("s0/m0/output/a/0", sum(values, random_values(512, 2), 1.8e-4), {8, 64});
  const Report report = report_of_run();
  EXPECT_TRUE(report.diverged());
  EXPECT_FALSE(report.diagnosis.has_value()) << report.diagnosis->sentence;
}

TEST_F(DiagnosisTest, ANormOverOneRanksGradientsIsTold) {
  const Matrix gradient = random_values(64, 1);
  add_reference("s0/main_grad/w/0", gradient, {8, 8});
  double squared = 0.0;
  for (const double value : gradient) {
    squared += value * value;
  }
  add_reference("s0/scalar/grad_norm/0", {std::sqrt(squared)}, {});
  for (int rank = 0; rank < 2; ++rank) {
    const auto first = static_cast<std::size_t>(rank) * 4;
    const Matrix part = rows_of(gradient, 8, first, first + 4);
    double own = 0.0;
    for (const double value : part) {
      own += value * value;
    }
    candidate_.add(rank,
                   {"s0/main_grad/w/0",
                    part,
                    ElementType::kF32,
                    {4, 8},
                    Placement{{share(8, rank, 2), all(8)}, 0, 1, "", 1.0}});
    candidate_.add(rank, {"s0/scalar/grad_norm/0", {std::sqrt(own)}});
  }
  const Diagnosis found = diagnosis("s0/scalar/grad_norm/0");
  EXPECT_EQ(found.signature, Signature::kLocalNorm);
  EXPECT_WORDING(found.sentence);
}

TEST_F(DiagnosisTest, ANormThatCountsCopiesIsTold) {
  const Matrix gradient = random_values(64, 1);
  add_both("s0/main_grad/w/0", gradient, {8, 8});
  double squared = 0.0;
  for (const double value : gradient) {
    squared += value * value;
  }
  add_reference("s0/scalar/grad_norm/0", {std::sqrt(squared)}, {});
  add_candidate("s0/scalar/grad_norm/0", {std::sqrt(2 * squared)}, {});
  const Diagnosis found = diagnosis("s0/scalar/grad_norm/0");
  EXPECT_EQ(found.signature, Signature::kLocalNorm);
  EXPECT_WORDING(found.sentence);
}

TEST_F(DiagnosisTest, AMissingTensorHasNoSignature) {
  add_both("s0/m0/output/a/0", random_values(8, 1), {8});
  add_reference("s0/m0/output/b/0", random_values(8, 2), {8});
  EXPECT_FALSE(report_of_run().diagnosis.has_value());
}

}  // namespace
}  // namespace ttrace
