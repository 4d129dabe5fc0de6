// Causes that numbers alone hide: wrong addends, factors, cuts and omissions.
#include "analysis/causes/common/storage_order.h"
#include "analysis/diagnosis/diagnosis_fixture.h"
#include "analysis/golden_wording.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

namespace ttrace {
namespace {

using namespace testing;
using ::testing::AllOf;
using ::testing::HasSubstr;

// g [rows, out], x [rows, in] -> g' x [out, in]
Matrix weight_gradient(const Matrix& g, const Matrix& x, std::size_t rows) {
  const std::size_t out = g.size() / rows;
  const std::size_t in = x.size() / rows;
  Matrix result(out * in);
  for (std::size_t row = 0; row < rows; ++row) {
    for (std::size_t o = 0; o < out; ++o) {
      for (std::size_t i = 0; i < in; ++i) {
        result[o * in + i] += g[row * out + o] * x[row * in + i];
      }
    }
  }
  return result;
}

// Seen where a linear's saved input lay in a buffer that the next layer wrote over: no cause named.
TEST_F(DiagnosisTest, AWeightGradientFromAnotherLayersInputIsTold) {
  const Matrix x0 = random_values(16 * 8, 1);
  const Matrix x1 = random_values(16 * 8, 2);
  const Matrix g = random_values(16 * 12, 3);
  add_both("s0/m0/output/layers.0.act/0", x0, {16, 8});
  add_both("s0/m0/output/layers.0.fc/0", random_values(16 * 12, 4), {16, 12});
  add_both("s0/m0/output/layers.1.act/0", x1, {16, 8});
  add_both("s0/m0/grad_output/layers.0.fc/0", g, {16, 12});
  add_reference("s0/m0/param_grad/layers.0.fc.weight/0", weight_gradient(g, x0, 16), {12, 8});
  add_candidate("s0/m0/param_grad/layers.0.fc.weight/0", weight_gradient(g, x1, 16), {12, 8});
  const Diagnosis found = diagnosis("s0/m0/param_grad/layers.0.fc.weight/0");
  EXPECT_EQ(found.signature, Signature::kWrongLayer);
  EXPECT_WORDING(found.sentence);
}

class MisreadInput : public DiagnosisTest {
 protected:
  static constexpr StoredMatrix kWhole{16, 8};

  // A weight gradient from an input that is read from its buffer in another order.
  Diagnosis of(const StoredMatrix& matrix, const Misreading& misreading) {
    const Matrix x = random_values(16 * 8, 1);
    const Matrix g = random_values(16 * 12, 3);
    Matrix stored(x.size());
    Matrix read(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) {
      stored[matrix.position(misreading.stored, {i / 8, i % 8})] = x[i];
    }
    for (std::size_t i = 0; i < x.size(); ++i) {
      read[i] = stored[matrix.position(misreading.read, {i / 8, i % 8})];
    }
    add_both("s0/m0/output/norm/0", x, {16, 8});
    add_both("s0/m0/output/fc/0", random_values(16 * 12, 4), {16, 12});
    add_both("s0/m0/grad_output/fc/0", g, {16, 12});
    add_reference("s0/m0/param_grad/fc.weight/0", weight_gradient(g, x, 16), {12, 8});
    add_candidate("s0/m0/param_grad/fc.weight/0", weight_gradient(g, read, 16), {12, 8});
    return diagnosis("s0/m0/param_grad/fc.weight/0");
  }
};

// Seen where gathered rows, stored as [features, rows] per rank, were read as one such block.
TEST_F(MisreadInput, OfPartsStoredOneAfterTheOtherIsTold) {
  const Diagnosis found = of({16, 8, 2}, {StorageOrder::kColumnsOfParts, StorageOrder::kColumns});
  EXPECT_EQ(found.signature, Signature::kWrongView);
  EXPECT_THAT(found.named.axes, ::testing::ElementsAre("tp"));
  EXPECT_WORDING(found.sentence);
}

// Seen where one such block was taken for the parts of ranks: no cause named.
TEST_F(MisreadInput, OfOneBlockThatIsTakenForPartsIsTold) {
  const Diagnosis found = of({16, 8, 2}, {StorageOrder::kColumns, StorageOrder::kColumnsOfParts});
  EXPECT_EQ(found.signature, Signature::kWrongView);
  EXPECT_WORDING(found.sentence);
}

// Seen where a transposed input was read as if it were not: no cause named.
TEST_F(MisreadInput, OfATransposedBlockIsTold) {
  const Diagnosis found = of(kWhole, {StorageOrder::kColumns, StorageOrder::kRows});
  EXPECT_EQ(found.signature, Signature::kWrongView);
  EXPECT_WORDING(found.sentence);
}

// Seen where the gradient that the output layer sends to a tied weight was dropped.
TEST_F(DiagnosisTest, AMissingUseOfATiedWeightIsTold) {
  const Matrix x = random_values(16 * 8, 1);
  const Matrix g = random_values(16 * 12, 2);
  const Matrix own = random_values(12 * 8, 3);
  add_both("s0/m0/output/norm/0", x, {16, 8});
  add_both("s0/m0/output/head/0", random_values(16 * 12, 4), {16, 12});
  add_both("s0/m0/grad_output/head/0", g, {16, 12});
  add_reference(
      "s0/m0/param_grad/embedding.weight/0", sum(own, weight_gradient(g, x, 16)), {12, 8});
  add_candidate("s0/m0/param_grad/embedding.weight/0", own, {12, 8});
  const Diagnosis found = diagnosis("s0/m0/param_grad/embedding.weight/0");
  EXPECT_EQ(found.signature, Signature::kWrongAddends);
  EXPECT_WORDING(found.sentence);
}

// Seen where main gradients of the second step began with those of the first: no cause named.
TEST_F(DiagnosisTest, ASumOnTopOfItsOldValueIsTold) {
  const Matrix before = random_values(64, 1);
  const Matrix now = random_values(64, 2);
  add_both("s0/main_grad/w/0", before, {8, 8});
  add_reference("s1/main_grad/w/0", now, {8, 8});
  add_candidate("s1/main_grad/w/0", sum(now, before, 0.25), {8, 8});
  const Diagnosis found = diagnosis("s1/main_grad/w/0");
  EXPECT_EQ(found.signature, Signature::kWrongAddends);
  EXPECT_WORDING(found.sentence);
}

// Seen where tensor-parallel ranks above 0 did not clip: "localised", or nothing.
TEST_F(DiagnosisTest, AFactorOfOneRanksPartIsTold) {
  const Matrix values = random_values(64, 1);
  add_reference("s0/exp_avg/w/0", values, {8, 8});
  for (int rank = 0; rank < 2; ++rank) {
    candidate_.add(rank,
                   {"s0/exp_avg/w/0",
                    scaled(rows_of(values, 8, rank * 4U, rank * 4U + 4U), rank == 0 ? 1.0 : 4.5),
                    ElementType::kF32,
                    {4, 8},
                    Placement{{share(8, rank, 2), all(8)}, 0, 1, "", 1.0}});
  }
  const Diagnosis found = diagnosis("s0/exp_avg/w/0");
  EXPECT_EQ(found.signature, Signature::kWrongFactor);
  EXPECT_WORDING(found.sentence);
}

// Adam divides by the gradient's own size: without clipping only a few elements move. Seen as
// "localised: only 20 of 257 rows".
TEST_F(DiagnosisTest, AnUpdateFromAnUnclippedGradientIsToldByItsMoment) {
  const Matrix moment = random_values(64, 1);
  Matrix after = random_values(64, 2);
  add_reference("s0/master/w/0", after, {8, 8});
  after[3] += 1.0;
  add_candidate("s0/master/w/0", after, {8, 8});
  add_reference("s0/exp_avg/w/0", moment, {8, 8});
  add_candidate("s0/exp_avg/w/0", scaled(moment, 4.5), {8, 8});
  const Diagnosis found = diagnosis("s0/master/w/0");
  EXPECT_EQ(found.signature, Signature::kWrongFactor);
  EXPECT_WORDING(found.sentence);
}

// Seen where probabilities of the chosen experts did not add up to 1.
TEST_F(DiagnosisTest, RowsWithFactorsOfTheirOwnAreTold) {
  const Matrix values = random_values(16 * 16, 1);
  Matrix wrong = values;
  for (std::size_t i = 0; i < wrong.size(); ++i) {
    wrong[i] *= 0.5 + 0.03 * static_cast<double>(i / 16);
  }
  const Diagnosis found = when(values, wrong, {16, 16});
  EXPECT_EQ(found.signature, Signature::kWrongFactor);
  EXPECT_WORDING(found.sentence);
}

// Seen where every rank summed the softmax's denominator over classes that it had gathered.
TEST_F(DiagnosisTest, ALossThatIsALogarithmTooLargeIsARepeatedSum) {
  const Matrix losses = random_values(64, 1);
  add_reference("s0/m0/loss/loss/0", losses, {16, 4});
  add_candidate("s0/m0/loss/loss/0", sum(losses, {std::log(2.0)}), {16, 4});
  const Diagnosis found = diagnosis("s0/m0/loss/loss/0");
  EXPECT_EQ(found.signature, Signature::kRepeatedReduction);
  EXPECT_WORDING(found.sentence);
}

// Seen where a recomputed forward ran without its collectives: "replicas diverge".
TEST_F(DiagnosisTest, AddendsOfAForwardThatRanAgainAddUpToTheFirst) {
  const Matrix left = random_values(64, 1);
  const Matrix right = random_values(64, 2);
  add_both("s0/m0/output/fc/0", sum(left, right), {8, 8});
  candidate_.add(0, {"s0/m0/output/fc/0~", left, ElementType::kF32, {8, 8}});
  candidate_.add(1, {"s0/m0/output/fc/0~", right, ElementType::kF32, {8, 8}});
  const Diagnosis found = diagnosis("s0/m0/output/fc/0~");
  EXPECT_EQ(found.signature, Signature::kMissingReduction);
  EXPECT_WORDING(found.sentence);
}

// Seen where the gradient of experts' input was not summed: every rank had the router's, too.
TEST_F(DiagnosisTest, AddendsBesideAGradientThatAllRanksHaveAddUpWithoutIt) {
  const Matrix left = random_values(16 * 8, 1);
  const Matrix right = random_values(16 * 8, 2);
  const Matrix scores = random_values(16 * 4, 3);
  const Matrix weight = random_values(4 * 8, 4);
  Matrix through(16 * 8);
  for (std::size_t i = 0; i < 16 * 4; ++i) {
    for (std::size_t j = 0; j < 8; ++j) {
      through[i / 4 * 8 + j] += scores[i] * weight[i % 4 * 8 + j];
    }
  }
  add_both("s0/param/router.weight/0", weight, {4, 8});
  add_both("s0/m0/output/norm/0", random_values(16 * 8, 5), {16, 8});
  add_both("s0/m0/output/router/0", random_values(16 * 4, 6), {16, 4});
  add_both("s0/m0/grad_output/router/0", scores, {16, 4});
  const std::string id = "s0/m0/grad_output/norm/0";
  add_reference(id, sum(sum(left, right), through), {16, 8});
  candidate_.add(0, {id, sum(left, through), ElementType::kF32, {16, 8}});
  candidate_.add(1, {id, sum(right, through), ElementType::kF32, {16, 8}});
  const Diagnosis found = diagnosis(id);
  EXPECT_EQ(found.signature, Signature::kMissingReduction);
  EXPECT_WORDING(found.sentence);
}

// Seen where ranks above 0 routed by another tensor: "wrong factor 0.042".
TEST_F(DiagnosisTest, AFactorOfOneCopyWithoutMeaningIsNoFactor) {
  const Matrix values = random_values(64, 1);
  add_reference("s0/m0/output/router/0", values, {8, 8});
  candidate_.add(0, {"s0/m0/output/router/0", values, ElementType::kF32, {8, 8}});
  candidate_.add(1, {"s0/m0/output/router/0", scaled(values, 0.4207), ElementType::kF32, {8, 8}});
  EXPECT_EQ(diagnosis("s0/m0/output/router/0").signature, Signature::kReplicasDiverge);
}

// Seen where a rank quantised its own rows and put them where all ranks' gathered rows belong.
TEST_F(DiagnosisTest, BlocksInAnotherOrderOnEveryRankAreTold) {
  const Matrix values = random_values(8 * 8, 1);
  add_reference("s0/m0/output/fc/0", values, {8, 8});
  for (std::size_t rank = 0; rank < 2; ++rank) {
    const Matrix own = columns_of(values, 8, rank * 4, rank * 4 + 4);
    Matrix twice = rows_of(own, 4, rank * 4, rank * 4 + 4);
    twice.insert(twice.end(), twice.begin(), twice.begin() + 16);
    candidate_.add(static_cast<int>(rank),
                   {"s0/m0/output/fc/0",
                    twice,
                    ElementType::kF32,
                    {8, 4},
                    Placement{{all(8), share(8, static_cast<int>(rank), 2)}, 0, 1, "", 1.0}});
  }
  const Diagnosis found = diagnosis("s0/m0/output/fc/0");
  EXPECT_EQ(found.signature, Signature::kWrongOrder);
  EXPECT_WORDING(found.sentence);
}

// Seen where the last stage numbered its layers from another offset; norms begin alike everywhere.
TEST_F(DiagnosisTest, ALayerUnderAnotherNumberIsFoundByAnyOfItsParameters) {
  const Matrix ones(8, 1.0);
  for (int layer = 0; layer < 2; ++layer) {
    const std::string path = "s0/param/layers." + std::to_string(layer);
    add_reference(path + ".norm.weight/0", ones, {8});
    add_reference(
        path + ".fc.weight/0", random_values(64, 1U + static_cast<unsigned>(layer)), {8, 8});
  }
  candidate_.add(0, {"s0/param/layers.0.norm.weight/0", ones, ElementType::kF32, {8}});
  candidate_.add(
      0, {"s0/param/layers.0.fc.weight/0", random_values(64, 2), ElementType::kF32, {8, 8}});
  const Report report = report_of_run();
  const auto missing =
      std::find_if(report.tensors.begin(), report.tensors.end(), [](const TensorVerdict& tensor) {
        return to_string(tensor.id) == "s0/param/layers.1.norm.weight/0";
      });
  ASSERT_NE(missing, report.tensors.end());
  EXPECT_EQ(missing->status(), Status::kMissingInCandidate);
  ASSERT_TRUE(report.diagnosis.has_value());
  EXPECT_EQ(report.diagnosis->signature, Signature::kWrongLayer);
}

// Both programs start from the same: the wrong layer then has the values of the number that it
// claims.
TEST_F(DiagnosisTest, ALayersNumberThatTwoStagesClaimIsTold) {
  for (int layer = 0; layer < 3; ++layer) {
    const std::string id = "s0/param/layers." + std::to_string(layer) + ".fc.weight/0";
    const Matrix values = random_values(64, 1U + static_cast<unsigned>(layer));
    add_reference(id, values, {8, 8});
    if (layer < 2) {
      candidate_.add(0, {id, values, ElementType::kF32, {8, 8}});
    }
    if (layer == 1) {
      candidate_.add(1, {id, values, ElementType::kF32, {8, 8}});
    }
  }
  const Diagnosis found = diagnosis("s0/param/layers.2.fc.weight/0");
  EXPECT_EQ(found.signature, Signature::kWrongLayer);
  EXPECT_WORDING(found.sentence);
}

// Seen where received tokens were sorted by one rank's counts: rows at the borders went to others.
TEST_F(DiagnosisTest, RowsOfAnotherExpertAreToldByTheReference) {
  const auto rows = [](std::vector<std::int64_t> numbers) {
    DimPlacement dim{std::ssize(numbers), 8, {}};
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      dim.segments.push_back({static_cast<std::int64_t>(i), numbers[i], 1});
    }
    dim.sparse = true;
    return Placement{{dim, all(4)}, 0, 1, "", 1.0};
  };
  const auto tensor = [&](int expert, std::vector<std::int64_t> numbers) {
    Tensor result{"s0/m0/input/mlp.experts." + std::to_string(expert) + ".fc/0",
                  random_values(numbers.size() * 4, 1),
                  ElementType::kF32,
                  {std::ssize(numbers), 4}};
    result.placement = rows(std::move(numbers));
    return result;
  };
  reference_.add(0, tensor(0, {0, 2, 4})).add(0, tensor(1, {1, 3, 5}));
  candidate_.add(0, tensor(0, {0, 2, 4})).add(0, tensor(1, {1, 3, 5}));
  candidate_.add(1, tensor(0, {0, 2, 5})).add(1, tensor(1, {1, 3, 4}));
  const Report report = report_of_run();
  ASSERT_TRUE(report.diagnosis.has_value());
  EXPECT_EQ(report.diagnosis->signature, Signature::kWrongOrder);
  EXPECT_WORDING(report.diagnosis.value().sentence);
}

// Seen where layers of a later stage stayed in BF16: "no rank recorded it" and no more.
TEST_F(DiagnosisTest, AScaleThatTheCandidateLacksIsAMissingRounding) {
  add_reference("s0/m0/scale/fc/0", {0.5}, {});
  add_both("s0/m0/output/fc/0", random_values(8, 1), {8});
  const Diagnosis found = diagnosis("s0/m0/scale/fc/0");
  EXPECT_EQ(found.signature, Signature::kHigherPrecision);
}

class NormDiagnosis : public DiagnosisTest {
 protected:
  Diagnosis when(double squared) {
    const Matrix dense = random_values(64, 1);
    const Matrix expert = random_values(64, 2);
    add_both("s0/main_grad/fc.weight/0", dense, {8, 8});
    add_both("s0/main_grad/mlp.experts.0.fc.weight/0", expert, {8, 8});
    double whole = 0.0;
    double experts = 0.0;
    for (std::size_t i = 0; i < dense.size(); ++i) {
      whole += dense[i] * dense[i] + expert[i] * expert[i];
      experts += expert[i] * expert[i];
    }
    add_reference("s0/scalar/grad_norm/0", {std::sqrt(whole)}, {});
    add_candidate(
        "s0/scalar/grad_norm/0", {squared < 0.0 ? std::sqrt(whole - experts) : squared}, {});
    return diagnosis("s0/scalar/grad_norm/0");
  }
};

TEST_F(NormDiagnosis, ThatLeavesExpertsOutIsTold) {
  const Diagnosis found = when(-1.0);
  EXPECT_EQ(found.signature, Signature::kLocalNorm);
  EXPECT_WORDING(found.sentence);
}

TEST_F(NormDiagnosis, OfNothingIsTold) {
  const Diagnosis found = when(0.0);
  EXPECT_EQ(found.signature, Signature::kLocalNorm);
  EXPECT_WORDING(found.sentence);
}

// Seen where a norm was summed over the pipeline's stages but not over tensor-parallel ranks: "no
// factor, sum or order found between them".
class PartOfANorm : public DiagnosisTest {
 protected:
  // A layer on each stage, cut over tp. A rank's norm is that of `peers` of it.
  Diagnosis over(const std::function<std::vector<int>(int)>& peers) {
    candidate_ = TraceBuilder(directory_ / "candidate", "candidate", 4);
    candidate_.set_axes({{"tp", 2}, {"pp", 2}});
    std::vector<double> squared(4);
    double whole = 0.0;
    for (int stage = 0; stage < 2; ++stage) {
      const Matrix gradient = random_values(64, static_cast<std::uint32_t>(stage), 1.0 + stage);
      const std::string id = "s0/main_grad/layers." + std::to_string(stage) + ".weight/0";
      add_reference(id, gradient, {8, 8});
      for (int tp = 0; tp < 2; ++tp) {
        const int rank = 2 * stage + tp;
        const auto first = static_cast<std::size_t>(4 * tp);
        const Matrix part = rows_of(gradient, 8, first, first + 4);
        const auto at = static_cast<std::size_t>(rank);
        squared[at] = std::inner_product(part.begin(), part.end(), part.begin(), 0.0);
        whole += squared[at];
        candidate_.add(rank,
                       {id,
                        part,
                        ElementType::kF32,
                        {4, 8},
                        Placement{{share(8, tp, 2), all(8)}, 0, 1, "", 1.0}});
      }
    }
    add_reference("s0/scalar/grad_norm/0", {std::sqrt(whole)}, {});
    for (int rank = 0; rank < 4; ++rank) {
      double sum = 0.0;
      for (const int peer : peers(rank)) {
        sum += squared[static_cast<std::size_t>(peer)];
      }
      candidate_.add(rank, {"s0/scalar/grad_norm/0", {std::sqrt(sum)}});
    }
    return diagnosis("s0/scalar/grad_norm/0");
  }
};

TEST_F(PartOfANorm, ThatIsNotSummedOverTensorParallelRanksIsNamedByTheirAxis) {
  const Diagnosis found = over([](int rank) { return std::vector{rank, (rank + 2) % 4}; });
  EXPECT_EQ(found.signature, Signature::kLocalNorm);
  EXPECT_WORDING(found.sentence);
}

TEST_F(PartOfANorm, ThatIsNotSummedOverStagesIsNamedByTheirAxis) {
  const Diagnosis found = over([](int rank) { return std::vector{rank, rank ^ 1}; });
  EXPECT_EQ(found.signature, Signature::kLocalNorm);
  EXPECT_WORDING(found.sentence);
}

TEST_F(PartOfANorm, OfEachRankAloneIsNamedByBothAxes) {
  const Diagnosis found = over([](int rank) { return std::vector{rank}; });
  EXPECT_EQ(found.signature, Signature::kLocalNorm);
  EXPECT_WORDING(found.sentence);
}

// Seen where a bucket ended within a bias: no coefficients fit the whole of it.
TEST_F(DiagnosisTest, ATailThatWasNotReducedIsToldByItsElements) {
  const Matrix first = random_values(64, 1);
  const Matrix second = random_values(64, 2);
  reference_.add(0, {"s0/m0/param_grad/w/0", first}).add(0, {"s0/m1/param_grad/w/0", second});
  noise_.push_back(noise_row("s0/m0/param_grad/w/0", 1e-3, 1e-4));
  noise_.push_back(noise_row("s0/m1/param_grad/w/0", 1e-3, 1e-4));
  candidate_.add(0, {"s0/m0/param_grad/w/0", first}).add(1, {"s0/m1/param_grad/w/0", second});
  add_reference("s0/main_grad/w/0", sum(first, second), {64});
  for (int rank = 0; rank < 2; ++rank) {
    Matrix held = sum(first, second);
    const Matrix& own = rank == 0 ? first : second;
    std::copy(own.begin() + 40, own.end(), held.begin() + 40);
    candidate_.add(rank, {"s0/main_grad/w/0", held});
  }
  const Diagnosis found = diagnosis("s0/main_grad/w/0");
  EXPECT_EQ(found.signature, Signature::kMissingReduction);
  EXPECT_WORDING(found.sentence);
}

// Seen where gradients were averaged over data-parallel ranks, too: "no factor, sum or order
// found".
TEST_F(DiagnosisTest, AMissingReductionOfScaledGradientsIsTold) {
  const Matrix left = random_values(64, 1);
  const Matrix right = random_values(64, 2);
  add_reference("s0/m0/grad_output/a/0", sum(left, right), {8, 8});
  for (int rank = 0; rank < 2; ++rank) {
    candidate_.add(rank,
                   {"s0/m0/grad_output/a/0",
                    scaled(rank == 0 ? left : right, 2.0),
                    ElementType::kF32,
                    {8, 8},
                    Placement{{all(8), all(8)}, 0, 1, "", 0.5}});
  }
  const Diagnosis found = diagnosis("s0/m0/grad_output/a/0");
  EXPECT_EQ(found.signature, Signature::kMissingReduction) << found.sentence;
  EXPECT_WORDING(found.sentence);
}

// Seen where nobody averaged the gradients that FSDP ignores: "no factor, sum or order relates
// them".
TEST_F(DiagnosisTest, AMissingMeanIsTold) {
  const Matrix left = random_values(64, 1);
  const Matrix right = random_values(64, 2);
  add_reference("s0/main_grad/w/0", scaled(sum(left, right), 0.5), {64});
  candidate_.add(0, {"s0/main_grad/w/0", left}).add(1, {"s0/main_grad/w/0", right});
  const Diagnosis found = diagnosis("s0/main_grad/w/0");
  EXPECT_EQ(found.signature, Signature::kMissingReduction) << found.sentence;
  EXPECT_WORDING(found.sentence);
}

// Seen where one rank's router had another input: "a sum in which not every addend has the
// coefficient 1", with 1.000 for the only addend of the other rank.
TEST_F(DiagnosisTest, OneAddendIsNoSum) {
  const Matrix x = random_values(16 * 8, 1);
  const Matrix w = random_values(8 * 8, 2);
  const Matrix y = product(x, w, 8, 0, 8);
  add_both("s0/param/fc.weight/0", w, {8, 8});
  add_both("s0/m0/input/fc/0", x, {16, 8});
  add_reference("s0/m0/output/fc/0", y, {16, 8});
  candidate_.add(0, {"s0/m0/output/fc/0", y, ElementType::kF32, {16, 8}});
  candidate_.add(1,
                 {"s0/m0/output/fc/0",
                  sum(scaled(y, 0.5), random_values(128, 3), 0.05),
                  ElementType::kF32,
                  {16, 8}});
  const Diagnosis found = diagnosis("s0/m0/output/fc/0");
  EXPECT_EQ(found.signature, Signature::kReplicasDiverge) << found.sentence;
}

// Scores [16, 2, 4] of tokens that take 2 experts each.
TEST_F(DiagnosisTest, ALoadBalancingLossThatCountsTwiceIsToldByItsGradient) {
  constexpr std::size_t kTokens = 32;
  const Matrix scores = random_values(kTokens * 4, 1, 2.0);
  Matrix chosen;
  Matrix loads(4);
  for (std::size_t token = 0; token < kTokens; ++token) {
    std::vector<std::size_t> order = {0, 1, 2, 3};
    std::sort(order.begin(), order.end(), [&](std::size_t left, std::size_t right) {
      return scores[token * 4 + left] > scores[token * 4 + right];
    });
    for (std::size_t k = 0; k < 2; ++k) {
      chosen.push_back(static_cast<double>(order[k]));
      loads[order[k]] += 1.0;
    }
  }
  Matrix balance(scores.size());
  for (std::size_t token = 0; token < kTokens; ++token) {
    double sum_of = 0.0;
    double mean = 0.0;
    for (std::size_t e = 0; e < 4; ++e) {
      sum_of += std::exp(scores[token * 4 + e]);
      mean += std::exp(scores[token * 4 + e]) * loads[e];
    }
    for (std::size_t e = 0; e < 4; ++e) {
      balance[token * 4 + e] = 4.0 / (2.0 * kTokens * kTokens) * std::exp(scores[token * 4 + e]) /
                               sum_of * (loads[e] - mean / sum_of);
    }
  }
  candidate_.manifest.model["aux_loss"] = "100";
  reference_.manifest.model["aux_loss"] = "100";
  add_both("s0/m0/output/router/0", scores, {16, 2, 4});
  reference_.add(0, {"s0/m0/routing/router/0", chosen, ElementType::kI64, {16, 2, 2}});
  candidate_.add_everywhere({"s0/m0/routing/router/0", chosen, ElementType::kI64, {16, 2, 2}});
  const Matrix other = random_values(scores.size(), 2);
  add_reference("s0/m0/grad_output/router/0", sum(other, balance, 100.0), {16, 2, 4});
  add_candidate("s0/m0/grad_output/router/0", sum(other, balance, 200.0), {16, 2, 4});
  const Diagnosis found = diagnosis("s0/m0/grad_output/router/0");
  EXPECT_EQ(found.signature, Signature::kWrongAddends);
  EXPECT_WORDING(found.sentence);
  EXPECT_THAT(found.named.factors, ::testing::ElementsAre(::testing::DoubleNear(2.0, 1e-3)));
}

}  // namespace
}  // namespace ttrace
