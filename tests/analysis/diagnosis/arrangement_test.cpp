// Values that are right and lie in the wrong places, or were never written.
#include "analysis/causes/common/order_name.h"
#include "analysis/diagnosis/diagnosis_fixture.h"
#include "analysis/golden_wording.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace ttrace {
namespace {

using namespace testing;
using ::testing::AllOf;
using ::testing::HasSubstr;

// Row i of the result is row order[i].
Matrix rows_in(const Matrix& matrix, std::size_t columns, const Order& order) {
  Matrix result;
  for (const std::int64_t row : order) {
    const auto first = static_cast<std::size_t>(row);
    const Matrix one = rows_of(matrix, columns, first, first + 1);
    result.insert(result.end(), one.begin(), one.end());
  }
  return result;
}

class ArrangementDiagnosis : public DiagnosisTest {};

TEST_F(ArrangementDiagnosis, ASequenceThatIsOneTokenOffIsShifted) {
  const Matrix values = random_values(std::size_t{41} * 8, 1);
  const Diagnosis found = when(rows_of(values, 8, 0, 40), rows_of(values, 8, 1, 41), {40, 8});
  EXPECT_EQ(found.signature, Signature::kShifted);
  EXPECT_WORDING(found.sentence);
}

TEST_F(ArrangementDiagnosis, ManyRowsThatWerePermutedAreMatchedUnderNoise) {
  const Matrix values = random_values(std::size_t{40} * 32, 1);
  Order order(40);
  for (std::size_t i = 0; i < order.size(); ++i) {
    order[i] = static_cast<std::int64_t>(i * 7 % 40);
  }
  std::swap(order[3], order[30]);
  const Matrix moved =
      sum(rows_in(values, 32, order), random_values(values.size(), 2), 0.01);  // 1 % noise
  const Diagnosis found = when(values, moved, {40, 32});
  EXPECT_EQ(found.signature, Signature::kWrongOrder);
  EXPECT_WORDING(found.sentence);
}

TEST_F(ArrangementDiagnosis, RowsOfSamplesThatWereReadAsPositionsAreAWrongView) {
  const Matrix values = random_values(std::size_t{60} * 16, 1);
  Order order(60);  // [20, 3] rows read as [3, 20]
  for (std::size_t i = 0; i < order.size(); ++i) {
    order[i] = static_cast<std::int64_t>(i % 3 * 20 + i / 3);
  }
  const Diagnosis found = when(values, rows_in(values, 16, order), {60, 16});
  EXPECT_EQ(found.signature, Signature::kWrongView);
  EXPECT_WORDING(found.sentence);
}

TEST_F(ArrangementDiagnosis, ATransposedMatrixIsAWrongView) {
  const Matrix values = random_values(std::size_t{24} * 24, 1);
  Matrix transposed(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    transposed[i] = values[i % 24 * 24 + i / 24];
  }
  const Diagnosis found = when(values, transposed, {24, 24});
  EXPECT_EQ(found.signature, Signature::kWrongView);
  EXPECT_WORDING(found.sentence);
}

TEST_F(ArrangementDiagnosis, ExchangedHeadsAreNamed) {
  reference_.manifest.model["heads"] = "8";
  candidate_.manifest.model["heads"] = "8";
  const std::string id = "s0/m0/output/layer.self_attention/0";
  const Matrix values = random_values(std::size_t{8} * 64, 1);
  Matrix swapped = values;
  for (std::size_t row = 0; row < 8; ++row) {
    const auto first = swapped.begin() + static_cast<std::ptrdiff_t>(row * 64);
    std::swap_ranges(first, first + 8, first + 8);
  }
  add_reference(id, values, {8, 64});
  add_candidate(id, swapped, {8, 64});
  const Diagnosis found = diagnosis(id);
  EXPECT_EQ(found.signature, Signature::kWrongOrder);
  EXPECT_WORDING(found.sentence);
}

TEST_F(ArrangementDiagnosis, ZigzagChunksThatWereNotPutBackAreNamed) {
  const Matrix values = random_values(std::size_t{8} * 16, 1);
  const Diagnosis found = when(values, rows_in(values, 16, {0, 1, 6, 7, 2, 3, 4, 5}), {8, 16});
  EXPECT_EQ(found.signature, Signature::kWrongOrder);
  EXPECT_WORDING(found.sentence);
}

TEST_F(ArrangementDiagnosis, ABlockThatNobodyWroteIsZeroThere) {
  const Matrix values = random_values(std::size_t{32} * 8, 1);
  add_reference(kOutput, values, {32, 8});
  for (int rank = 0; rank < 2; ++rank) {
    const auto first = static_cast<std::size_t>(rank) * 16;
    Matrix rows = rows_of(values, 8, first, first + 16);
    if (rank == 1) {
      std::fill(rows.begin(), rows.begin() + 64, 0.0);
    }
    candidate_.add(rank,
                   {kOutput,
                    rows,
                    ElementType::kF32,
                    {16, 8},
                    Placement{{share(32, rank, 2), all(8)}, 0, 1, "", 1.0}});
  }
  const Diagnosis found = diagnosis(kOutput);
  EXPECT_EQ(found.signature, Signature::kZeroBlock);
  EXPECT_WORDING(found.sentence);
}

TEST_F(ArrangementDiagnosis, ABlockOfTheMicrobatchBeforeWasNotWritten) {
  const Matrix first = random_values(256, 1);
  const Matrix second = random_values(256, 2);
  Matrix mixed = second;
  std::copy_n(first.begin() + 64, 64, mixed.begin() + 64);
  add_both("s0/m0/output/a/0", first, {32, 8});
  add_reference("s0/m1/output/a/0", second, {32, 8});
  add_candidate("s0/m1/output/a/0", mixed, {32, 8});
  const Diagnosis found = diagnosis("s0/m1/output/a/0");
  EXPECT_EQ(found.signature, Signature::kZeroBlock);
  EXPECT_WORDING(found.sentence);
}

TEST_F(ArrangementDiagnosis, EqualPartsOnTwoRanksAreDuplicates) {
  const Matrix values = random_values(64, 1);
  const Matrix other = random_values(32, 5);  // of no part of the reference
  add_reference(kOutput, values, {8, 8});
  for (int rank = 0; rank < 2; ++rank) {
    candidate_.add(rank,
                   {kOutput,
                    other,
                    ElementType::kF32,
                    {4, 8},
                    Placement{{share(8, rank, 2), all(8)}, 0, 1, "", 1.0}});
  }
  const Diagnosis found = diagnosis(kOutput);
  EXPECT_EQ(found.signature, Signature::kDuplicatedBlock);
  EXPECT_WORDING(found.sentence);
}

TEST_F(ArrangementDiagnosis, AnErrorAtTheEdgeBetweenRanksIsABoundary) {
  const Matrix values = random_values(std::size_t{32} * 8, 1);
  const Matrix noise = random_values(16, 2);
  add_reference(kOutput, values, {32, 8});
  for (int rank = 0; rank < 2; ++rank) {
    const auto first = static_cast<std::size_t>(rank) * 16;
    Matrix rows = rows_of(values, 8, first, first + 16);
    std::copy_n(noise.begin() + rank * 8, 8, rank == 0 ? rows.end() - 8 : rows.begin());
    candidate_.add(rank,
                   {kOutput,
                    rows,
                    ElementType::kF32,
                    {16, 8},
                    Placement{{share(32, rank, 2), all(8)}, 0, 1, "", 1.0}});
  }
  const Diagnosis found = diagnosis(kOutput);
  EXPECT_EQ(found.signature, Signature::kBoundary);
  EXPECT_WORDING(found.sentence);
}

TEST(OrderName, SaysWhatOrderItIs) {
  EXPECT_EQ(order_name({1, 0, 2, 3}, "heads"), "heads 0 <-> 1");
  EXPECT_EQ(order_name({2, 3, 4, 0, 1}, "blocks"), "turned by 2 blocks");
  EXPECT_EQ(order_name({4, 3, 2, 1, 0, 5}, "blocks"), "blocks 0 <-> 4, 1 <-> 3");
  EXPECT_EQ(order_name({9, 8, 7, 6, 5, 4, 3, 2, 1, 0}, "blocks"), "reversed");
  EXPECT_EQ(order_name({0, 0, 1}, "blocks"), "blocks put in the place of others");
  EXPECT_EQ(order_name({1, 2, 0, 4, 3}, "rows"), "rows permuted in 2 cycles, the longest of 3");
  EXPECT_EQ(coarsest({4, 5, 2, 3, 0, 1}), Order({2, 1, 0}));
}

}  // namespace
}  // namespace ttrace
