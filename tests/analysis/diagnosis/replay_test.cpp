// Modules computed again from recorded inputs: positions, attention, activations, norms, FP8
// scales.
#include "analysis/diagnosis/diagnosis_fixture.h"
#include "analysis/golden_wording.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace ttrace {
namespace {

using namespace testing;
using ::testing::AllOf;
using ::testing::HasSubstr;

// Queries [16, 2, 4, 8], turned by rotary positions.
class PositionsDiagnosis : public DiagnosisTest {
 protected:
  static constexpr const char* kQuery = "s0/m0/input/layer.self_attention.core_attention/0";
  static constexpr std::size_t kTokens = 16;
  static constexpr std::size_t kRow = 2 * 4 * 8;  // numbers of a token

  [[nodiscard]] Matrix turned(const std::vector<int>& positions,
                              double base = 10000.0,
                              bool neighbours = false) const {
    Matrix result = plain_;
    for (std::size_t first = 0; first < result.size(); first += 8) {
      const int position = positions[first / kRow];
      for (std::size_t k = 0; k < 4; ++k) {
        const double angle = position * std::pow(base, -static_cast<double>(k) / 4.0);
        const std::size_t left = first + (neighbours ? 2 * k : k);
        const std::size_t right = first + (neighbours ? 2 * k + 1 : k + 4);
        result[left] = plain_[left] * std::cos(angle) - plain_[right] * std::sin(angle);
        result[right] = plain_[right] * std::cos(angle) + plain_[left] * std::sin(angle);
      }
    }
    return result;
  }
  Diagnosis when(const Matrix& candidate) {
    add_reference(kQuery, turned(in_order()), {16, 2, 4, 8});
    add_candidate(kQuery, candidate, {16, 2, 4, 8});
    return diagnosis(kQuery);
  }
  static std::vector<int> in_order() {
    std::vector<int> positions(kTokens);
    for (std::size_t i = 0; i < kTokens; ++i) {
      positions[i] = static_cast<int>(i);
    }
    return positions;
  }

  Matrix plain_ = random_values(kTokens * kRow, 1);
};

TEST_F(PositionsDiagnosis, PositionsThatRestartAreNamedByTheirTokens) {
  std::vector<int> positions = in_order();
  for (std::size_t i = 8; i < kTokens; ++i) {
    positions[i] -= 8;
  }
  const Diagnosis found = when(turned(positions));
  EXPECT_EQ(found.signature, Signature::kPositions);
  EXPECT_WORDING(found.sentence);
}

TEST_F(PositionsDiagnosis, PositionsThatWereNotAppliedAreNamed) {
  const Diagnosis found = when(plain_);
  EXPECT_EQ(found.signature, Signature::kPositions);
  EXPECT_WORDING(found.sentence);
}

TEST_F(PositionsDiagnosis, AnotherBaseIsFound) {
  const Diagnosis found = when(turned(in_order(), 500000.0));
  EXPECT_EQ(found.signature, Signature::kPositions);
  EXPECT_WORDING(found.sentence);
}

TEST_F(PositionsDiagnosis, NeighboursTurnedInsteadOfHalvesAreFound) {
  const Diagnosis found = when(turned(in_order(), 10000.0, true));
  EXPECT_EQ(found.signature, Signature::kPositions);
  EXPECT_WORDING(found.sentence);
}

TEST_F(PositionsDiagnosis, OtherValuesAreNoPositions) {
  add_both("s0/m0/output/embedding/0", plain_, {16, 2, 32});
  add_reference(kQuery, turned(in_order()), {16, 2, 4, 8});
  add_candidate(kQuery, random_values(plain_.size(), 7), {16, 2, 4, 8});
  EXPECT_FALSE(report_of_run().diagnosis.has_value());
}

// Query [12, 2, 4, 8], key and value [12, 2, 2, 8].
class AttentionDiagnosis : public DiagnosisTest {
 protected:
  static constexpr const char* kOutput = "s0/m0/output/layer.self_attention.core_attention/0";
  static constexpr std::size_t kTokens = 12;

  void SetUp() override {
    reference_.manifest.model["heads"] = "16";  // of hidden 128
    candidate_.manifest.model["heads"] = "16";
    const std::string input = "s0/m0/input/layer.self_attention.core_attention/";
    add_both(input + "0", query_, {12, 2, 4, 8});
    add_both(input + "1", key_, {12, 2, 2, 8});
    add_both(input + "2", value_, {12, 2, 2, 8});
  }
  [[nodiscard]] Matrix output(double scale, std::size_t ahead) const {
    Matrix result;
    for (std::size_t row = 0; row < kTokens * 2 * 4; ++row) {
      const std::size_t token = row / 8;
      const std::size_t sample = row / 4 % 2;
      const std::size_t group = row % 4 / 2;
      Matrix sum(8);
      double total = 0.0;
      for (std::size_t other = 0; other < std::min(kTokens, token + 1 + ahead); ++other) {
        const std::size_t first = ((other * 2 + sample) * 2 + group) * 8;
        double score = 0.0;
        for (std::size_t i = 0; i < 8; ++i) {
          score += query_[row * 8 + i] * key_[first + i];
        }
        total += std::exp(score * scale);
        for (std::size_t i = 0; i < 8; ++i) {
          sum[i] += std::exp(score * scale) * value_[first + i];
        }
      }
      for (const double number : sum) {
        result.push_back(number / total);
      }
    }
    return result;
  }
  Diagnosis when(const Matrix& candidate) {
    add_reference(kOutput, output(1.0 / std::sqrt(8.0), 0), {12, 2, 32});
    add_candidate(kOutput, candidate, {12, 2, 32});
    return diagnosis(kOutput);
  }

  Matrix query_ = random_values(kTokens * 64, 1, 3.0);
  Matrix key_ = random_values(kTokens * 32, 2, 3.0);
  Matrix value_ = random_values(kTokens * 32, 3, 3.0);
};

TEST_F(AttentionDiagnosis, AScaleOfScoresIsFittedAndNamed) {
  const Diagnosis found = when(output(1.0 / 8.0, 0));
  EXPECT_EQ(found.signature, Signature::kAttention);
  EXPECT_WORDING(found.sentence);
}

TEST_F(AttentionDiagnosis, AMaskThatIsOneTokenOffIsNamed) {
  const Diagnosis found = when(output(1.0 / std::sqrt(8.0), 1));
  EXPECT_EQ(found.signature, Signature::kAttention);
  EXPECT_WORDING(found.sentence);
}

TEST_F(AttentionDiagnosis, AMissingMaskIsNamed) {
  const Diagnosis found = when(output(1.0 / std::sqrt(8.0), kTokens));
  EXPECT_EQ(found.signature, Signature::kAttention);
  EXPECT_WORDING(found.sentence);
}

// Query, key and value [16, 1, 4, 8], cut over two parts of the sequence and two of the heads.
// Seen where a ring had both cuts: only that without the second one was named.
TEST_F(DiagnosisTest, KeysOfAnotherPartReadWithRowsAndGroupsExchangedAreNamed) {
  const Matrix query = random_values(16 * 32, 1, 3.0);
  const Matrix key = random_values(16 * 32, 2, 3.0);
  const Matrix value = random_values(16 * 32, 3, 3.0);
  // The row of 8 numbers that a query of `token` takes for `other`.
  const auto row = [](std::size_t token, std::size_t other, std::size_t head, bool exchanged) {
    if (!exchanged || token / 8 == other / 8) {
      return (other * 4 + head) * 8;
    }
    const std::size_t at = head % 2 * 8 + other % 8;  // [rows 8, groups 2] as [groups, rows]
    return ((other / 8 * 8 + at / 2) * 4 + head / 2 * 2 + at % 2) * 8;
  };
  const auto output = [&](bool exchanged) {
    Matrix result;
    for (std::size_t token = 0; token < 16; ++token) {
      for (std::size_t head = 0; head < 4; ++head) {
        Matrix weighted(8);
        double total = 0.0;
        for (std::size_t other = 0; other <= token; ++other) {
          const std::size_t from = row(token, other, head, exchanged);
          double score = 0.0;
          for (std::size_t i = 0; i < 8; ++i) {
            score += query[(token * 4 + head) * 8 + i] * key[from + i];
          }
          const double weight = std::exp(score / std::sqrt(8.0));
          total += weight;
          for (std::size_t i = 0; i < 8; ++i) {
            weighted[i] += weight * value[from + i];
          }
        }
        for (const double number : weighted) {
          result.push_back(number / total);
        }
      }
    }
    return result;
  };
  candidate_ = TraceBuilder(directory_ / "candidate", "candidate", 4);
  candidate_.set_axes({{"tp", 2}, {"cp", 2}});
  const auto add = [&](const std::string& id, const Matrix& right, const Matrix& held, bool out) {
    const std::vector<std::int64_t> shape =
        out ? std::vector<std::int64_t>{16, 1, 32} : std::vector<std::int64_t>{16, 1, 4, 8};
    add_reference(id, right, shape);
    for (int rank = 0; rank < 4; ++rank) {
      const int tp = rank % 2;
      const int cp = rank / 2;
      const auto first = static_cast<std::size_t>(cp * 8);
      const auto column = static_cast<std::size_t>(tp * 16);
      Placement placement{{share(16, cp, 2), all(1)}, 0, 1, "", 1.0};
      std::vector<std::int64_t> local = {8, 1};
      placement.dims.push_back(share(out ? 32 : 4, tp, 2));
      local.push_back(out ? 16 : 2);
      if (!out) {
        placement.dims.push_back(all(8));
        local.push_back(8);
      }
      candidate_.add(rank,
                     {id,
                      columns_of(rows_of(held, 32, first, first + 8), 32, column, column + 16),
                      ElementType::kF32,
                      local,
                      placement});
    }
  };
  const std::string module = "layer.self_attention.core_attention/";
  add("s0/m0/input/" + module + "0", query, query, false);
  add("s0/m0/input/" + module + "1", key, key, false);
  add("s0/m0/input/" + module + "2", value, value, false);
  add("s0/m0/output/" + module + "0", output(false), output(true), true);
  const Diagnosis found = diagnosis("s0/m0/output/" + module + "0");
  EXPECT_EQ(found.signature, Signature::kWrongView) << found.sentence;
  EXPECT_WORDING(found.sentence);
}

class VariantDiagnosis : public DiagnosisTest {
 protected:
  template <class Function>
  static Matrix each(Matrix values, const Function& f) {
    std::transform(values.begin(), values.end(), values.begin(), f);
    return values;
  }
  // LayerNorm of [16, 32] without bias.
  [[nodiscard]] static Matrix normed(const Matrix& values, const Matrix& weight, double epsilon) {
    Matrix result = values;
    for (std::size_t row = 0; row < values.size(); row += 32) {
      double mean = 0.0;
      double squared = 0.0;
      for (std::size_t i = 0; i < 32; ++i) {
        mean += values[row + i] / 32.0;
      }
      for (std::size_t i = 0; i < 32; ++i) {
        squared += std::pow(values[row + i] - mean, 2) / 32.0;
      }
      for (std::size_t i = 0; i < 32; ++i) {
        result[row + i] = (values[row + i] - mean) / std::sqrt(squared + epsilon) * weight[i];
      }
    }
    return result;
  }
};

TEST_F(VariantDiagnosis, GeluWithTanhInsteadOfErfIsTold) {
  const Matrix values = random_values(2048, 1, 3.0);
  add_both("s0/m0/output/fc1/0", values, {32, 64});
  add_reference(
      "s0/m0/output/activation/0",
      each(values, [](double x) { return 0.5 * x * (1.0 + std::erf(x / std::sqrt(2.0))); }),
      {32, 64});
  add_candidate("s0/m0/output/activation/0",
                each(values,
                     [](double x) {
                       return 0.5 * x *
                              (1.0 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
                     }),
                {32, 64});
  const Diagnosis found = diagnosis("s0/m0/output/activation/0");
  EXPECT_EQ(found.signature, Signature::kOtherVariant);
  EXPECT_WORDING(found.sentence);
}

TEST_F(VariantDiagnosis, ExchangedHalvesOfAGateAreTold) {
  const Matrix values = random_values(2048, 1, 3.0);
  const auto gated = [&](std::size_t gate) {
    Matrix result;
    for (std::size_t i = 0; i < 1024; ++i) {
      const double x = values[i / 32 * 64 + i % 32 + gate];
      const double up = values[i / 32 * 64 + i % 32 + 32 - gate];
      result.push_back(x / (1.0 + std::exp(-x)) * up);
    }
    return result;
  };
  add_both("s0/m0/output/fc1/0", values, {32, 64});
  add_reference("s0/m0/output/activation/0", gated(0), {32, 32});
  add_candidate("s0/m0/output/activation/0", gated(32), {32, 32});
  const Diagnosis found = diagnosis("s0/m0/output/activation/0");
  EXPECT_EQ(found.signature, Signature::kOtherVariant);
  EXPECT_WORDING(found.sentence);
}

TEST_F(VariantDiagnosis, AnotherEpsilonOfANormIsTold) {
  Matrix values = random_values(512, 1, 0.1);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] *= static_cast<double>(1 + i / 32) / 8.0;
  }
  const Matrix weight = random_values(32, 2);
  add_both("s0/param/norm.weight/0", weight, {32});
  add_both("s0/m0/output/embedding/0", values, {16, 32});
  add_reference("s0/m0/output/norm/0", normed(values, weight, 1e-5), {16, 32});
  add_candidate("s0/m0/output/norm/0", normed(values, weight, 1e-3), {16, 32});
  const Diagnosis found = diagnosis("s0/m0/output/norm/0");
  EXPECT_EQ(found.signature, Signature::kOtherVariant);
  EXPECT_WORDING(found.sentence);
}

// Input [8, 8] of a linear in FP8, quantised by one scale.
class Fp8ScaleDiagnosis : public DiagnosisTest {
 protected:
  static constexpr const char* kScale = "s0/m0/scale/fc/0";

  void SetUp() override {
    input_[5] = -300.0;
    input_[9] = 200.0;
    add_both("s0/m0/output/norm/0", input_, {8, 8});
  }
  Diagnosis when(double reference, double candidate) {
    add_reference(kScale, {reference}, {});
    add_candidate(kScale, {candidate}, {});
    return diagnosis(kScale);
  }

  Matrix input_ = random_values(64, 1, 100.0);
};

TEST_F(Fp8ScaleDiagnosis, AnAmaxOfSignedValuesIsToldWithWhatSaturates) {
  const Diagnosis found =
      when(static_cast<float>(300.0 / 448.0), static_cast<float>(200.0 / 448.0));
  EXPECT_EQ(found.signature, Signature::kFp8Scale);
  EXPECT_WORDING(found.sentence);
}

TEST_F(Fp8ScaleDiagnosis, ExchangedFormatsAreToldByTheirLargestNumbers) {
  const Diagnosis found =
      when(static_cast<float>(300.0 / 57344.0), static_cast<float>(300.0 / 448.0));
  EXPECT_EQ(found.signature, Signature::kFp8Scale);
  EXPECT_WORDING(found.sentence);
}

TEST_F(Fp8ScaleDiagnosis, ScalesOfOwnPartsAreToldByTheLargestOfThem) {
  add_reference(kScale, {0.75}, {});
  candidate_.add(0, {kScale, {0.75}});
  candidate_.add(1, {kScale, {0.5}});
  const Diagnosis found = diagnosis(kScale);
  EXPECT_EQ(found.signature, Signature::kFp8Scale);
  EXPECT_WORDING(found.sentence);
}

TEST_F(Fp8ScaleDiagnosis, AnEntryOfTheHistoryInsteadOfItsLargestIsTold) {
  add_both("s0/m0/amax_history/fc/0", {350.0, 700.0, 400.0, 0.0}, {4});
  const Diagnosis found =
      when(static_cast<float>(700.0 / 448.0), static_cast<float>(350.0 / 448.0));
  EXPECT_EQ(found.signature, Signature::kFp8Scale);
  EXPECT_WORDING(found.sentence);
}

}  // namespace
}  // namespace ttrace
