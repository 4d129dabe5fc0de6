// The laws of one linear module on two ranks, and what breaks each of them.
#include "analysis/checks/law_check.h"

#include "analysis/align/values.h"
#include "analysis/diff.h"
#include "analysis/trace_builder.h"
#include "support/temporary_directory.h"
#include "support/tensor_bytes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace ttrace::testing {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using Doubles = std::vector<double>;

constexpr std::int64_t kTokens = 96;
constexpr std::int64_t kInputs = 64;
constexpr std::int64_t kOutputs = 80;

// sum over k of a(i, k) b(j, k), of `rows` x `columns`.
Doubles contract(std::int64_t rows,
                 std::int64_t columns,
                 std::int64_t inner,
                 const std::function<double(std::int64_t, std::int64_t)>& a,
                 const std::function<double(std::int64_t, std::int64_t)>& b) {
  Doubles result;
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < columns; ++j) {
      double sum = 0.0;
      for (std::int64_t k = 0; k < inner; ++k) {
        sum += a(i, k) * b(j, k);
      }
      result.push_back(sum);
    }
  }
  return result;
}

std::function<double(std::int64_t, std::int64_t)> rows_of(const Doubles& values,
                                                          std::int64_t columns) {
  return [&values, columns](std::int64_t i, std::int64_t j) {
    return values[static_cast<std::size_t>(i * columns + j)];
  };
}
std::function<double(std::int64_t, std::int64_t)> columns_of(const Doubles& values,
                                                             std::int64_t columns) {
  return [&values, columns](std::int64_t i, std::int64_t j) {
    return values[static_cast<std::size_t>(j * columns + i)];
  };
}

// y = x W^T + b in two micro-batches, row-parallel: each rank has half of the inputs, and both have
// all of the result. In F32.
class LawsOfALinear : public ::testing::Test {
 protected:
  LawsOfALinear() {
    for (int m = 0; m < 2; ++m) {
      x_[m] = normal_values(kTokens * kInputs, 10 + static_cast<unsigned>(m));
      gy_[m] = normal_values(kTokens * kOutputs, 20 + static_cast<unsigned>(m));
      y_[m] = contract(kTokens, kOutputs, kInputs, rows_of(x_[m], kInputs), rows_of(w_, kInputs));
      for (std::size_t i = 0; i < y_[m].size(); ++i) {
        y_[m][i] += b_[i % kOutputs];
      }
      gx_[m] =
          contract(kTokens, kInputs, kOutputs, rows_of(gy_[m], kOutputs), columns_of(w_, kInputs));
      gw_[m] = contract(
          kOutputs, kInputs, kTokens, columns_of(gy_[m], kOutputs), columns_of(x_[m], kInputs));
    }
    main_grad_ = gw_[0];
    std::transform(
        gw_[1].begin(), gw_[1].end(), main_grad_.begin(), main_grad_.begin(), std::plus<>());
    double squares = 0.0;
    for (const double value : main_grad_) {
      squares += value * value;
    }
    norm_ = std::sqrt(squares);
  }

  // The columns of a tensor that the rank holds.
  static Tensor half(const std::string& id, const Doubles& all, std::int64_t rows, int rank) {
    constexpr std::int64_t kHalf = kInputs / 2;
    Tensor tensor{id, {}, ElementType::kF32, {rows, kHalf}, {}};
    for (std::int64_t row = 0; row < rows; ++row) {
      const auto begin = all.begin() + row * kInputs + rank * kHalf;
      tensor.values.insert(tensor.values.end(), begin, begin + kHalf);
    }
    tensor.placement.dims = {{rows, rows, {{0, 0, rows}}},
                             {kHalf, kInputs, {{0, rank * kHalf, kHalf}}}};
    return tensor;
  }
  static Tensor all_of(const std::string& id,
                       const Doubles& values,
                       std::int64_t columns,
                       ElementType type = ElementType::kF32) {
    return {id, values, type, {static_cast<std::int64_t>(values.size()) / columns, columns}, {}};
  }

  Trace trace() {
    TraceBuilder builder(directory_ / ("t" + std::to_string(traces_++)), "candidate", 2);
    for (int rank = 0; rank < 2; ++rank) {
      builder.add(rank, half("s0/param/fc.weight/0", w_, kOutputs, rank));
      builder.add(rank, {"s0/param/fc.bias/0", b_});
      for (int m = 0; m < 2; ++m) {
        const std::string batch = "s0/m" + std::to_string(m) + "/";
        builder.add(rank, half(batch + "input/fc/0", x_[m], kTokens, rank));
        builder.add(rank, all_of(batch + "output/fc/0", y_[m], kOutputs));
        builder.add(rank, all_of(batch + "grad_output/fc/0", gy_[m], kOutputs, type_of_gradients_));
        builder.add(rank, half(batch + "grad_input/fc/0", gx_[m], kTokens, rank));
        builder.add(rank, half(batch + "param_grad/fc.weight/0", gw_[m], kOutputs, rank));
      }
      builder.add(rank, half("s0/main_grad/fc.weight/0", main_grad_, kOutputs, rank));
      builder.add(rank, {"s0/scalar/grad_norm/0", {norm_}, ElementType::kF64});
    }
    return builder.write();
  }
  static std::vector<std::string> broken(const std::vector<Law>& laws) {
    std::vector<std::string> ids;
    for (const Law& law : laws) {
      if (!law.holds()) {
        ids.push_back(std::string(name_of(law.kind)) + " " + to_string(law.result));
      }
    }
    return ids;
  }
  std::vector<std::string> broken() { return broken(laws_of(trace())); }

  TemporaryDirectory directory_;
  int traces_ = 0;
  Doubles w_ = normal_values(kOutputs * kInputs, 1);
  Doubles b_ = normal_values(kOutputs, 2);
  Doubles x_[2];
  Doubles y_[2];
  Doubles gy_[2];
  Doubles gx_[2];
  Doubles gw_[2];
  Doubles main_grad_;
  ElementType type_of_gradients_ = ElementType::kF32;
  double norm_ = 0.0;
};

TEST_F(LawsOfALinear, AllHold) {
  const std::vector<Law> laws = laws_of(trace());
  EXPECT_THAT(broken(laws), IsEmpty());
  const auto of = [&](LawKind kind) { return std::ranges::count(laws, kind, &Law::kind); };
  EXPECT_EQ(of(LawKind::kOutput), 2);
  EXPECT_EQ(of(LawKind::kInputGradient), 2);
  EXPECT_EQ(of(LawKind::kWeightGradient), 2);
  EXPECT_EQ(of(LawKind::kReducedGradient), 1);
  EXPECT_EQ(of(LawKind::kGradientNorm), 1);
  EXPECT_EQ(of(LawKind::kCopies), 6);  // bias, two outputs, two gradients of these, the norm
}

TEST_F(LawsOfALinear, AnOutputWithoutTheOtherRanksAddendBreaksItsLawAlone) {
  const auto first_half = [&](std::int64_t i, std::int64_t k) {
    return k < kInputs / 2 ? x_[1][static_cast<std::size_t>(i * kInputs + k)] : 0.0;
  };
  y_[1] = contract(kTokens, kOutputs, kInputs, first_half, rows_of(w_, kInputs));
  EXPECT_THAT(broken(), ElementsAre("output s0/m1/output/fc/0"));
}

TEST_F(LawsOfALinear, AGradientThatIsDoubledBreaksItsLawAlone) {
  gx_[0] = scaled(gx_[0], 2.0);
  EXPECT_THAT(broken(), ElementsAre("input gradient s0/m0/grad_input/fc/0"));
}

TEST_F(LawsOfALinear, AnInputThatWasOverwrittenBeforeBackwardBreaksTheLawOfTheWeightsGradient) {
  const Doubles later = normal_values(kTokens * kInputs, 50);
  gw_[0] = contract(
      kOutputs, kInputs, kTokens, columns_of(gy_[0], kOutputs), columns_of(later, kInputs));
  EXPECT_THAT(broken(),
              ElementsAre("weight gradient s0/m0/param_grad/fc.weight/0",
                          "reduced gradient s0/main_grad/fc.weight/0"));
}

// Symptom: a right program under autocast, with parameters in F32, was accused of the gradients of
// its weights, 4850 times their scale: their products are rounded to BF16, and then cast to F32.
TEST_F(LawsOfALinear, AGradientIsRoundedToTheTypeOfWhatItIsMadeOf) {
  for (int m = 0; m < 2; ++m) {
    gw_[m] = rounded(gw_[m], ElementType::kBF16);
  }
  EXPECT_THAT(broken(), Contains("weight gradient s0/m0/param_grad/fc.weight/0"));
  type_of_gradients_ = ElementType::kBF16;
  EXPECT_THAT(broken(), Not(Contains(HasSubstr("weight gradient"))));
}

TEST_F(LawsOfALinear, ANormOfOneRanksShardsBreaksItsLaw) {
  norm_ *= std::sqrt(0.5);
  EXPECT_THAT(broken(), ElementsAre("gradient norm s0/scalar/grad_norm/0"));
}

// Without a reference one factor that all reduced gradients have is as good as another.
TEST_F(LawsOfALinear, AFactorOfAllReducedGradientsNeedsAReference) {
  const std::vector<Law> reference = laws_of(trace());
  main_grad_ = scaled(main_grad_, 0.5);
  norm_ *= 0.5;
  const std::vector<Law> laws = laws_of(trace());
  EXPECT_THAT(broken(laws), IsEmpty());
  EXPECT_THAT(broken(laws_of(trace(), reference).laws),
              ElementsAre("reduced gradient s0/main_grad/fc.weight/0"));
}

// As a fused norm does, whose product takes what nobody recorded.
TEST_F(LawsOfALinear, WhatTheReferenceDoesNotObeyIsNotInForce) {
  y_[0] = scaled(y_[0], 3.0);
  y_[1] = scaled(y_[1], 3.0);
  const std::vector<Law> laws = laws_of(trace());
  EXPECT_THAT(broken(laws), ElementsAre("output s0/m0/output/fc/0", "output s0/m1/output/fc/0"));
  const LawsInForce in_force = laws_of(trace(), laws);
  EXPECT_EQ(in_force.left_out, 2U);
  EXPECT_EQ(in_force.laws.size(), laws.size() - 2);
  EXPECT_THAT(broken(in_force.laws), IsEmpty());
}

// Without forced passes a law tells that the error is made here, and a right one that it is not.
TEST_F(LawsOfALinear, WithoutForcedPassesTheyAnswerForTheOperators) {
  const Trace reference = trace();
  y_[0] = scaled(y_[0], 1.001);
  const Report report = diff(reference, trace());
  const auto verdict = [&](const std::string& id) {
    return *std::ranges::find_if(
        report.tensors, [&](const TensorVerdict& tensor) { return to_string(tensor.id) == id; });
  };
  const TensorVerdict wrong = verdict("s0/m0/output/fc/0");
  EXPECT_EQ(wrong.tier(), Tier::kT1);
  EXPECT_EQ(wrong.symptom(), Symptom::kOperator);
  ASSERT_NE(wrong.find(Question::kLaw), nullptr);
  EXPECT_NEAR(wrong.find(Question::kLaw)->term(Term::kError),
              1e-3 * wrong.find(Question::kLaw)->term(Term::kNorm),
              3e-4 * wrong.find(Question::kLaw)->term(Term::kNorm));
  ASSERT_NE(verdict("s0/m1/output/fc/0").find(Question::kLaw), nullptr);
  EXPECT_TRUE(verdict("s0/m1/output/fc/0").find(Question::kLaw)->holds);
  EXPECT_EQ(verdict("s0/scalar/grad_norm/0").find(Question::kLaw), nullptr);
}

}  // namespace
}  // namespace ttrace::testing
