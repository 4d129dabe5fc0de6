// A constant that was added everywhere, and values of another precision.
#include "analysis/diagnosis/diagnosis_fixture.h"
#include "analysis/golden_wording.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace ttrace {
namespace {

using namespace testing;
using ::testing::AllOf;
using ::testing::HasSubstr;

// Rounds to the nearest number of `type`.
Matrix rounded(const Matrix& values, ElementType type) {
  const auto count = static_cast<std::int64_t>(values.size());
  std::vector<std::byte> bytes(values.size() * element_size(type));
  Matrix result(values.size());
  from_double(type, values.data(), count, bytes.data());
  to_double(type, bytes.data(), count, result.data());
  return result;
}

class OffsetDiagnosis : public DiagnosisTest {};

TEST_F(OffsetDiagnosis, ANumberAddedEverywhereIsFitted) {
  const Matrix values = random_values(512, 1);
  const Diagnosis found = when(values, sum(values, {0.25}), {8, 64});
  EXPECT_EQ(found.signature, Signature::kConstantBias);
  EXPECT_WORDING(found.sentence);
}

TEST_F(OffsetDiagnosis, AMeanThatEveryRowKeptIsNamed) {
  const Matrix values = random_values(512, 1);
  const Matrix means = random_values(8, 2);
  Matrix wrong = values;
  for (std::size_t i = 0; i < wrong.size(); ++i) {
    wrong[i] += means[i / 64];
  }
  const Diagnosis found = when(values, wrong, {8, 64});
  EXPECT_EQ(found.signature, Signature::kConstantBias);
  EXPECT_WORDING(found.sentence);
}

TEST_F(OffsetDiagnosis, AVectorAddedToEveryRowIsNamed) {
  const Matrix values = random_values(512, 1);
  const Diagnosis found = when(values, sum(values, random_values(32, 2)), {16, 32});
  EXPECT_EQ(found.signature, Signature::kConstantBias);
  EXPECT_WORDING(found.sentence);
}

TEST_F(OffsetDiagnosis, ABiasThatWasLeftOutIsNamed) {
  const Matrix values = random_values(512, 1);
  const Matrix bias = random_values(32, 2);
  add_both("s0/param/a.bias/0", bias, {32});
  const Diagnosis found = when(values, sum(values, bias, -1.0), {16, 32});
  EXPECT_EQ(found.signature, Signature::kConstantBias);
  EXPECT_WORDING(found.sentence);
}

TEST_F(OffsetDiagnosis, TruncationLeavesErrorsOfOneSign) {
  const Matrix exact = random_values(512, 1);
  Matrix cut = rounded(exact, ElementType::kBF16);
  for (std::size_t i = 0; i < cut.size(); ++i) {
    if (std::abs(cut[i]) > std::abs(exact[i])) {  // the next number of BF16 nearer to zero
      cut[i] = rounded({cut[i] * (1.0 - 0.006)}, ElementType::kBF16)[0];
    }
  }
  reference_.add(0, {kOutput, rounded(exact, ElementType::kBF16), ElementType::kBF16, {8, 64}});
  noise_.push_back(noise_row(kOutput, 1e-3, 1e-4));
  candidate_.add_everywhere({kOutput, cut, ElementType::kBF16, {8, 64}});
  const Diagnosis found = diagnosis(kOutput);
  EXPECT_EQ(found.signature, Signature::kConstantBias);
  EXPECT_WORDING(found.sentence);
}

TEST_F(OffsetDiagnosis, NumbersOfALowerFormatAreAnExtraRounding) {
  const std::string id = "s0/main_grad/w/0";
  const Matrix values = random_values(512, 1);
  add_reference(id, values, {8, 64});
  add_candidate(id, rounded(values, ElementType::kBF16), {8, 64});
  const Diagnosis found = diagnosis(id);
  EXPECT_EQ(found.signature, Signature::kExtraRounding);
  EXPECT_WORDING(found.sentence);
}

TEST_F(OffsetDiagnosis, NumbersThatWereNotRoundedAreOfAHigherPrecision) {
  const Matrix values = random_values(512, 1);
  const Diagnosis found = when(rounded(values, ElementType::kE4M3), values, {8, 64});
  EXPECT_EQ(found.signature, Signature::kHigherPrecision);
  EXPECT_WORDING(found.sentence);
}

TEST_F(OffsetDiagnosis, ValuesThatHaveLittleToDoWithTheReferenceAreNoRounding) {
  const Matrix values = random_values(512, 1);
  add_reference(kOutput, values, {8, 64});
  add_candidate(kOutput, rounded(random_values(512, 2), ElementType::kBF16), {8, 64});
  EXPECT_FALSE(report_of_run().diagnosis.has_value());
}

}  // namespace
}  // namespace ttrace
