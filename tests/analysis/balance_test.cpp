// A load-balancing loss that every rank computes of its own tokens.
#include "analysis/diff.h"
#include "analysis/golden_wording.h"
#include "support/temporary_directory.h"
#include "trace_builder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

namespace ttrace {
namespace {

using ::testing::HasSubstr;
using testing::TraceBuilder;
using testing::wavy;
using Numbers = std::vector<double>;

constexpr std::size_t kBalancedTokens = 16;
constexpr std::size_t kBalancedExperts = 4;

// dL/ds of L = E / T^2 sum_e n_e sum_t p_te, of the tokens from `first` on.
Numbers balance_gradient(const Numbers& scores,
                         const Numbers& chosen,
                         std::size_t first,
                         std::size_t count) {
  Numbers loads(kBalancedExperts);
  for (std::size_t t = first; t < first + count; ++t) {
    loads[static_cast<std::size_t>(chosen[t])] += 1.0;
  }
  Numbers gradient;
  for (std::size_t t = first; t < first + count; ++t) {
    double sum = 0.0;
    double mean = 0.0;
    for (std::size_t e = 0; e < kBalancedExperts; ++e) {
      sum += std::exp(scores[t * kBalancedExperts + e]);
      mean += std::exp(scores[t * kBalancedExperts + e]) * loads[e];
    }
    for (std::size_t e = 0; e < kBalancedExperts; ++e) {
      const double p = std::exp(scores[t * kBalancedExperts + e]) / sum;
      gradient.push_back(static_cast<double>(kBalancedExperts) /
                         static_cast<double>(count * count) * p * (loads[e] - mean / sum));
    }
  }
  return gradient;
}

Numbers half_of(const Numbers& values, std::size_t rank) {
  const auto half = static_cast<std::ptrdiff_t>(values.size() / 2);
  const auto begin = values.begin() + static_cast<std::ptrdiff_t>(rank) * half;
  return {begin, begin + half};
}

Placement half_rows(std::size_t rank, std::int64_t columns) {
  constexpr std::int64_t kHalf = kBalancedTokens / 2;
  return {
      {DimPlacement{kHalf, kBalancedTokens, {{0, static_cast<std::int64_t>(rank) * kHalf, kHalf}}},
       DimPlacement{columns, columns, {{0, 0, columns}}}},
      0,
      1,
      "",
      1.0};
}

// The report on two ranks whose loss counts `weight` times as much as the reference's.
Report compare_weight(double weight) {
  testing::TemporaryDirectory folder;
  TraceBuilder reference{folder / "reference", "reference"};
  TraceBuilder candidate{folder / "candidate", "candidate", 2, "dp"};
  const Numbers scores = wavy(kBalancedTokens * kBalancedExperts, 0.4);
  Numbers chosen;
  for (std::size_t t = 0; t < kBalancedTokens; ++t) {
    const double* const row = scores.data() + t * kBalancedExperts;
    chosen.push_back(static_cast<double>(std::max_element(row, row + kBalancedExperts) - row));
  }
  Numbers whole = wavy(kBalancedTokens * kBalancedExperts, 2.0);
  Numbers parts = whole;
  const Numbers all = balance_gradient(scores, chosen, 0, kBalancedTokens);
  for (std::size_t i = 0; i < whole.size(); ++i) {
    const std::size_t rank = i / (whole.size() / 2);
    const Numbers own =
        balance_gradient(scores, chosen, rank * kBalancedTokens / 2, kBalancedTokens / 2);
    parts[i] += 0.5 * weight * own[i % (whole.size() / 2)];
    whole[i] += all[i];
  }
  const auto add = [&](const std::string& id,
                       const Numbers& left,
                       const Numbers& right,
                       std::int64_t columns,
                       ElementType type) {
    reference.add(0, {id, left, type, {kBalancedTokens, columns}});
    for (std::size_t rank = 0; rank < 2; ++rank) {
      candidate.add(static_cast<int>(rank),
                    {id,
                     half_of(right, rank),
                     type,
                     {kBalancedTokens / 2, columns},
                     half_rows(rank, columns)});
    }
  };
  add("s0/m0/output/mixture.gate/0", scores, scores, kBalancedExperts, ElementType::kF64);
  add("s0/m0/routing/mixture/0", chosen, chosen, 1, ElementType::kI64);
  add("s0/m0/grad_output/mixture.gate/0", whole, parts, kBalancedExperts, ElementType::kF64);
  return diff(reference.write(), candidate.write());
}

// Symptom: a right program under DDP alarmed at its gate, without a cause.
TEST(BalanceOfOwnTokens, IsNamedAsALossThatIsNotLinear) {
  const Report report = compare_weight(1.0);
  ASSERT_TRUE(report.diagnosis.has_value());
  EXPECT_EQ(report.diagnosis->signature, Signature::kLossNormalisation);
  EXPECT_WORDING(report.diagnosis.value().sentence);
  EXPECT_WORDING(report.diagnosis.value().sentence);
}

TEST(BalanceOfOwnTokens, AWrongWeightIsToldApart) {
  const Report report = compare_weight(0.5);
  ASSERT_TRUE(report.diagnosis.has_value());
  EXPECT_EQ(report.diagnosis->signature, Signature::kLossNormalisation);
  EXPECT_WORDING(report.diagnosis.value().sentence);
  ASSERT_EQ(report.diagnosis->named.factors.size(), 1U);
  EXPECT_NEAR(report.diagnosis->named.factors.front(), 0.5, 1e-6);
}

}  // namespace
}  // namespace ttrace
