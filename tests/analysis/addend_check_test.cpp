#include "analysis/checks/addend_check.h"

#include "analysis/diff.h"
#include "analysis/golden_wording.h"
#include "analysis/trace_builder.h"
#include "analysis/verdict_terms.h"
#include "support/temporary_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>
#include <string>
#include <vector>

namespace ttrace {
namespace {

using testing::check_of;

using ::testing::HasSubstr;
using testing::off;
using testing::scaled;
using testing::TemporaryDirectory;
using testing::TraceBuilder;
using testing::wavy;

constexpr std::size_t kAddendWidth = 128;
constexpr std::size_t kRowsOfRank = 6;  // of each rank
constexpr int kAddendRanks = 4;
constexpr auto kAddendType = ElementType::kBF16;
const std::string kModule = "layer.input_layernorm";

using Numbers = std::vector<double>;

Numbers rounded(const Numbers& values) {
  std::vector<std::byte> bytes(values.size() * element_size(kAddendType));
  const auto count = static_cast<std::int64_t>(values.size());
  from_double(kAddendType, values.data(), count, bytes.data());
  Numbers result(values.size());
  to_double(kAddendType, bytes.data(), count, result.data());
  return result;
}

Numbers sum_of(const std::vector<Numbers>& list) {
  Numbers sum(list.front().size());
  for (const Numbers& each : list) {
    for (std::size_t i = 0; i < sum.size(); ++i) {
      sum[i] += each[i];
    }
  }
  return sum;
}

// Written here once more, so that the check is not tested against itself.
Numbers gradient_of_weight(const Numbers& x, const Numbers& g, double epsilon, bool centred) {
  const std::size_t width = x.size() / kRowsOfRank;
  Numbers sum(width);
  for (std::size_t row = 0; row < kRowsOfRank; ++row) {
    const double* const of_row = x.data() + row * width;
    double mean = 0.0;
    double square = 0.0;
    for (std::size_t i = 0; i < width; ++i) {
      mean += of_row[i] / static_cast<double>(width);
      square += of_row[i] * of_row[i] / static_cast<double>(width);
    }
    const double variance = centred ? square - mean * mean : square;
    for (std::size_t i = 0; i < width; ++i) {
      sum[i] +=
          g[row * width + i] * (of_row[i] - (centred ? mean : 0.0)) / std::sqrt(variance + epsilon);
    }
  }
  return sum;
}

Numbers sum_of_rows(const Numbers& g) {
  const std::size_t width = g.size() / kRowsOfRank;
  Numbers sum(width);
  for (std::size_t i = 0; i < g.size(); ++i) {
    sum[i % width] += g[i];
  }
  return sum;
}

// Four ranks, each with rows of its own, whose addends to the gradient of a vector are stored in
// BF16. What is compared is a gradient that the kernel reduced in F32 inside.
class AddendCheckTest : public ::testing::Test {
 protected:
  AddendCheckTest() { take_inputs(1.0); }

  // Inputs of the norm of about the magnitude `size`.
  void take_inputs(double size, std::size_t width = kAddendWidth) {
    width_ = static_cast<std::int64_t>(width);
    x_.clear();
    g_.clear();
    for (int rank = 0; rank < kAddendRanks; ++rank) {
      x_.push_back(rounded(scaled(wavy(kRowsOfRank * width, 0.3 + rank), size)));
      // The last rank's count for less.
      const double share = rank + 1 == kAddendRanks ? 0.5 : 1.0;
      g_.push_back(rounded(scaled(wavy(kRowsOfRank * width, 1.9 + 0.7 * rank), share)));
    }
    right_.clear();
    for (std::size_t rank = 0; rank < kAddendRanks; ++rank) {
      right_.push_back(gradient_of_weight(x_[rank], g_[rank], 1e-5, true));
    }
  }

  // The result of the current comparison.
  [[nodiscard]] std::string folder(const std::string& name) const {
    return folder_ / (name + std::to_string(comparisons_));
  }

  [[nodiscard]] Trace single(const std::string& name,
                             const std::string& pass,
                             const Numbers& gradient,
                             ElementType type = ElementType::kF32) const {
    TraceBuilder builder(folder(name), pass);
    builder.manifest.precision = "bf16";
    builder.add(0, {id_, gradient, type});
    return builder.write();
  }

  void add_records(TraceBuilder& builder, int rank) const {
    const auto at = static_cast<std::size_t>(rank);
    const std::vector<std::int64_t> shape = {kRowsOfRank, width_};
    Placement rows = whole(shape);
    rows.dims[0] = DimPlacement{kRowsOfRank,
                                kRowsOfRank * kAddendRanks,
                                {{0, static_cast<std::int64_t>(kRowsOfRank) * rank, kRowsOfRank}}};
    if (input_ == Input::kRecorded) {
      builder.add(rank, {"s0/m0/input/" + kModule + "/0", x_[at], kAddendType, shape, rows});
    } else if (input_ == Input::kTaken) {
      builder.add(rank, {"s0/m0/output/embedding/0", x_[at], kAddendType, shape, rows});
      builder.edge(rank, "s0/m0/input/" + kModule + "/0", "s0/m0/output/embedding/0");
    }
    if (has_gradients_) {
      builder.add(rank, {"s0/m0/grad_output/" + kModule + "/0", g_[at], kAddendType, shape, rows});
    }
  }

  // `addends`: what the ranks recorded.
  Report compare(const std::vector<Numbers>& addends) {
    ++comparisons_;
    TraceBuilder builder(folder("candidate"), "candidate", kAddendRanks);
    builder.manifest.precision = "bf16";
    for (int rank = 0; rank < kAddendRanks; ++rank) {
      add_records(builder, rank);
      Placement placement = whole(std::vector<std::int64_t>{width_});
      placement.partial_index = rank;
      placement.partial_count = kAddendRanks;
      placement.partial_over = "tp";
      builder.add(rank,
                  {id_, addends[static_cast<std::size_t>(rank)], kAddendType, {width_}, placement});
    }
    const Trace candidate = builder.write();
    const Numbers all = sum_of(right_);
    const Trace reference = single("reference", "reference", all, kAddendType);
    const ForcedTraces forced{single("wide", "forced", all),
                              single("native", "forced", off(all, native_error_, 2.0))};
    DiffOptions options;
    options.forced = &forced;
    options.allow_missing.emplace_back("missing tensor", ".");
    return diff(reference, candidate, options);
  }

  [[nodiscard]] const TensorVerdict& verdict(const Report& report) const {
    for (const TensorVerdict& tensor : report.tensors) {
      if (to_string(tensor.id) == id_) {
        return tensor;
      }
    }
    throw std::logic_error(id_ + " was not judged");
  }

  [[nodiscard]] const Check* found(const Report& report, Question question) const {
    return verdict(report).find(question);
  }

  // Rank 3's addend is `factor` times what it should be.
  [[nodiscard]] std::vector<Numbers> with_factor(double factor) const {
    std::vector<Numbers> addends = right_;
    addends.back() = scaled(addends.back(), factor);
    return addends;
  }

  enum class Input { kRecorded, kTaken, kNone };

  TemporaryDirectory folder_;
  int comparisons_ = 0;
  std::int64_t width_ = kAddendWidth;
  std::string id_ = "s0/m0/param_grad/" + kModule + ".weight/0";
  Input input_ = Input::kRecorded;
  bool has_gradients_ = true;
  double native_error_ = 0.0017;  // a rounding to BF16
  std::vector<Numbers> x_;        // by rank
  std::vector<Numbers> g_;
  std::vector<Numbers> right_;  // what the ranks' addends should be
};

TEST_F(AddendCheckTest, RightAddendsErrByTheirRounding) {
  const Report report = compare(right_);
  EXPECT_FALSE(report.diverged());
  ASSERT_NE(found(report, Question::kOperatorPart), nullptr);
  EXPECT_NEAR(found(report, Question::kOperatorPart)->term(Term::kQ), 1.0, 0.3);
  EXPECT_EQ(verdict(report).claim(), nullptr);
}

// Symptom: 1 % of a rank's addend to a norm's gradient could be missing and all was within bound,
// because it is 0.4 % of the whole gradient where rounding makes 0.2 %.
TEST_F(AddendCheckTest, PercentMissingInOneAddendIsFoundThoughTheWholeIsWithin) {
  const Report report = compare(with_factor(0.992));
  EXPECT_TRUE(found(report, Question::kOperator)->holds);
  ASSERT_TRUE(report.diverged());
  const TensorVerdict& tensor = verdict(report);
  EXPECT_EQ(tensor.tier(), Tier::kT1);
  EXPECT_EQ(tensor.symptom(), Symptom::kOperator);
  EXPECT_EQ(found(report, Question::kOperatorPart)->place.where, "the addend of rank 3");
  EXPECT_EQ(tensor.ranks(), std::vector<int>{3});
  EXPECT_THAT(
      tensor.cause(),
      HasSubstr(
          "the addend of rank 3 is wrong: computed again from the rank's own rows, the error is "));
  ASSERT_TRUE(report.diagnosis);
  EXPECT_EQ(report.diagnosis->signature, Signature::kWrongAddends);
  EXPECT_WORDING(report.diagnosis.value().sentence);
  EXPECT_WORDING(report.diagnosis.value().sentence);
}

TEST_F(AddendCheckTest, SmallerFactorOfOneAddendIsSeenAsAFactor) {
  const Report report = compare(with_factor(0.9985));
  EXPECT_TRUE(found(report, Question::kOperatorPart)->holds);
  ASSERT_NE(found(report, Question::kOperatorFactor), nullptr);
  EXPECT_FALSE(found(report, Question::kOperatorFactor)->holds);
  EXPECT_NEAR(found(report, Question::kOperatorFactor)->value, -0.0015, 0.0005);
  EXPECT_THAT(verdict(report).cause(), HasSubstr("the addend of rank 3 is (1 - 0.00"));
  EXPECT_FALSE(report.diagnosis) << "roundings are most of the error";
}

TEST_F(AddendCheckTest, AddendThatIsMissingIsBeyondAFiniteBound) {
  const Report report = compare(with_factor(0.0));
  ASSERT_FALSE(found(report, Question::kOperatorPart)->holds);
  EXPECT_TRUE(std::isfinite(found(report, Question::kOperatorPart)->term(Term::kQ)));
}

// All addends are wrong alike, so the gradient as a whole shows more than its addends.
TEST_F(AddendCheckTest, FactorOfAllAddendsIsNotToldAsOneOfSome) {
  std::vector<Numbers> addends;
  for (const Numbers& each : right_) {
    addends.push_back(scaled(each, 0.25));
  }
  const Report report = compare(addends);
  EXPECT_FALSE(found(report, Question::kOperatorPart)->holds);
  EXPECT_EQ(verdict(report).claim(), nullptr);
}

TEST_F(AddendCheckTest, InputTakenFromAnotherModuleIsReadThroughTheEdge) {
  input_ = Input::kTaken;
  EXPECT_FALSE(compare(right_).diverged());
  EXPECT_TRUE(compare(with_factor(0.99)).diverged());
}

TEST_F(AddendCheckTest, RmsNormIsKnownByItsGradient) {
  for (std::size_t rank = 0; rank < kAddendRanks; ++rank) {
    right_[rank] = gradient_of_weight(x_[rank], g_[rank], 1e-5, false);
  }
  EXPECT_NEAR(check_of(verdict(compare(right_)), Question::kOperatorPart).term(Term::kQ), 1.0, 0.3);
  EXPECT_TRUE(compare(with_factor(0.99)).diverged());
}

// Inputs of a variance of 1e-6, where epsilons of 1e-5 and 1e-6 are a factor of 2.3 apart.
TEST_F(AddendCheckTest, EpsilonIsTheOneThatMakesTheGradient) {
  take_inputs(1e-3);
  for (std::size_t rank = 0; rank < kAddendRanks; ++rank) {
    right_[rank] = gradient_of_weight(x_[rank], g_[rank], 1e-6, true);
  }
  EXPECT_NEAR(check_of(verdict(compare(right_)), Question::kOperatorPart).term(Term::kQ), 1.0, 0.3);
  EXPECT_TRUE(compare(with_factor(0.99)).diverged());
}

TEST_F(AddendCheckTest, BiasNeedsNoInputs) {
  id_ = "s0/m0/param_grad/" + kModule + ".bias/0";
  input_ = Input::kNone;
  for (std::size_t rank = 0; rank < kAddendRanks; ++rank) {
    right_[rank] = sum_of_rows(g_[rank]);
  }
  EXPECT_NEAR(check_of(verdict(compare(right_)), Question::kOperatorPart).term(Term::kQ), 1.0, 0.3);
  EXPECT_TRUE(compare(with_factor(0.99)).diverged());
}

// A kernel that adds up in BF16: what it errs beyond a rounding is granted to every addend.
TEST_F(AddendCheckTest, KernelThatAccumulatesCoarselyIsCheckedWeakly) {
  native_error_ = 0.03;
  std::vector<Numbers> addends = right_;
  for (std::size_t rank = 0; rank < kAddendRanks; ++rank) {
    addends[rank] = off(right_[rank], 0.03, 3.0 + static_cast<double>(rank));
  }
  const Report report = compare(addends);
  EXPECT_TRUE(is_weak(*found(report, Question::kOperator)));
  ASSERT_NE(found(report, Question::kOperatorPart), nullptr);
  EXPECT_TRUE(found(report, Question::kOperatorPart)->holds);
  EXPECT_FALSE(report.diverged());
  EXPECT_THAT(report.notes.at(0), HasSubstr("operators of 1 tensor are checked weakly"));
  EXPECT_TRUE(compare(with_factor(0.5)).diverged());
}

// Symptom: a clean run with norms of queries and keys of 8 elements raised an alarm: an addend's
// error was 3.5 times the estimate from 8 numbers of the native pass.
TEST_F(AddendCheckTest, WhatFewElementsTellOfAKernelsErrorsIsNotTakenForMore) {
  take_inputs(1.0, 8);
  native_error_ = 0.01;
  std::vector<Numbers> addends = right_;
  addends[1] = off(right_[1], 0.05, 3.0);
  EXPECT_FALSE(compare(addends).diverged());
  native_error_ = 0.0017;  // the scale is a rounding
  EXPECT_TRUE(compare(addends).diverged());
}

// Symptom: a clean BF16 run of accelerate (Qwen3, DDP) raised an alarm: in one micro-batch of many,
// the native pass erred by less than a rounding in the 8 elements of a norm's weight, and an addend
// by 3.13 roundings.
TEST_F(AddendCheckTest, FewElementsThatErrLittleByChanceDoNotMakeAKernelExact) {
  take_inputs(1.0, 8);
  native_error_ = 0.001;
  std::vector<Numbers> addends = right_;
  addends[1] = off(right_[1], 0.008, 3.0);
  EXPECT_FALSE(compare(addends).diverged());
  addends[1] = off(right_[1], 0.05, 3.0);
  EXPECT_TRUE(compare(addends).diverged());
}

// Symptom: a clean F32 run of Megatron-core with a norm of keys of four elements raised an alarm:
// the native pass erred by less than a rounding there, and an addend's factor was 1.07 of its bound
// where its error was 0.035 of its own.
TEST_F(AddendCheckTest, FewElementsThatErrLittleByChanceDoNotMakeAFactorExact) {
  take_inputs(1.0, 8);
  native_error_ = 0.0014;  // a rounding is 0.0017
  EXPECT_FALSE(compare(with_factor(1.004)).diverged());
  EXPECT_TRUE(compare(with_factor(1.05)).diverged());
}

TEST_F(AddendCheckTest, WithoutGradientsOfTheOutputThereIsNoCheckOfAddends) {
  has_gradients_ = false;
  const Report report = compare(with_factor(0.992));
  EXPECT_EQ(found(report, Question::kOperatorPart), nullptr);
  EXPECT_EQ(found(report, Question::kOperatorFactor), nullptr);
  EXPECT_FALSE(report.diverged());
}

TEST_F(AddendCheckTest, GradientOfAnUnknownOperatorHasNoCheckOfAddends) {
  for (std::size_t rank = 0; rank < kAddendRanks; ++rank) {
    right_[rank] = wavy(kAddendWidth, 5.0 + static_cast<double>(rank));
  }
  EXPECT_EQ(found(compare(with_factor(0.99)), Question::kOperatorPart), nullptr);
}

}  // namespace
}  // namespace ttrace
