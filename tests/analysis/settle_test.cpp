// Where tensors lie of which nobody said it, as the values tell.
#include "analysis/infer/settle.h"

#include "analysis/diff.h"
#include "analysis/golden_wording.h"
#include "support/temporary_directory.h"
#include "trace_builder.h"

#include <ttrace/error.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <fstream>
#include <random>
#include <string>
#include <vector>

namespace ttrace {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using testing::Tensor;
using ::testing::ThrowsMessage;
using testing::TraceBuilder;

using Numbers = std::vector<double>;

Numbers noise(std::size_t count, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<double> normal;
  Numbers values(count);
  for (double& value : values) {
    value = static_cast<float>(normal(generator));
  }
  return values;
}

// Tensors [8, 4] of which two ranks hold what they like.
class SettleTest : public ::testing::Test {
 protected:
  void add_reference(const std::string& id, const Numbers& values) {
    reference_.add(0, {id, values, ElementType::kF32, {8, 4}});
  }
  void add_candidate(const std::string& id, int rank, Numbers values, bool undeclared = true) {
    const auto rows = static_cast<std::int64_t>(values.size() / 4);
    candidate_.add(rank, {id, std::move(values), ElementType::kF32, {rows, 4}, {}, undeclared});
  }
  // Rows, in the order of ranks.
  void add_cut(const std::string& id, const Numbers& values, bool undeclared = true) {
    add_reference(id, values);
    add_candidate(id, 0, Numbers(values.begin(), values.begin() + 16), undeclared);
    add_candidate(id, 1, Numbers(values.begin() + 16, values.end()), undeclared);
  }
  // The ranks' values add up to the reference's, which are returned.
  Numbers add_addends(const std::string& id) {
    const Numbers first = noise(32, 1);
    const Numbers second = noise(32, 2);
    Numbers sum = first;
    for (std::size_t i = 0; i < sum.size(); ++i) {
      sum[i] += second[i];
    }
    add_reference(id, sum);
    add_candidate(id, 0, first);
    add_candidate(id, 1, second);
    return sum;
  }
  // What is settled, and the report that follows.
  std::vector<SettledClass> settle() {
    const Trace reference = reference_.write();
    Trace candidate = candidate_.write();
    std::vector<SettledClass> settled = settle_placements(reference, candidate, 1);
    report_ = diff(reference, candidate);
    return settled;
  }

  testing::TemporaryDirectory folder_;
  TraceBuilder reference_{folder_ / "reference", "reference"};
  TraceBuilder candidate_{folder_ / "candidate", "candidate", 2};
  Report report_;
};

// Symptom: every output of a tensor-parallel plan that TTrace does not know was "replicas
// disagree".
TEST_F(SettleTest, ACutThatNobodyDeclaresIsFoundAndUsed) {
  add_cut("s0/m0/output/layers.0.fc1/0", noise(32, 1));
  add_cut("s0/m0/output/layers.1.fc1/0", noise(32, 2));
  const std::vector<SettledClass> settled = settle();
  ASSERT_THAT(settled, SizeIs(1));
  EXPECT_EQ(settled.front().settlement, Settlement::kUsed);
  EXPECT_EQ(settled.front().dims, "a[tp] c");
  EXPECT_EQ(settled.front().members, 2U);
  EXPECT_WORDING(settled.front().sentence());
  EXPECT_FALSE(report_.diverged());
}

TEST_F(SettleTest, AWrongTensorOfAClassIsPlacedLikeTheOthersAndFound) {
  add_cut("s0/m0/output/layers.0.fc1/0", noise(32, 1));
  const std::string id = "s0/m0/output/layers.1.fc1/0";
  add_reference(id, noise(32, 2));
  add_candidate(id, 0, noise(16, 3));
  add_candidate(id, 1, noise(16, 4));
  EXPECT_EQ(settle().front().settlement, Settlement::kUsed);
  ASSERT_TRUE(report_.diverged());
  EXPECT_EQ(to_string(report_.tensors[*report_.first_divergence].id), id);
  EXPECT_TRUE(report_.tensors[*report_.first_divergence].comparison.has_value());
}

// That is what a missing reduction looks like.
TEST_F(SettleTest, AddendsAreAQuestionAndStayAFinding) {
  add_addends("s0/m0/output/layers.0.fc2/0");
  const std::vector<SettledClass> settled = settle();
  ASSERT_THAT(settled, SizeIs(1));
  EXPECT_EQ(settled.front().settlement, Settlement::kQuestion);
  EXPECT_WORDING(settled.front().sentence());
  EXPECT_TRUE(report_.diverged());
}

// Symptom: where one layer of a hand-written tensor-parallel program did not sum, the first layer,
// which does, was the first divergence.
TEST_F(SettleTest, OnlyAddendsThatNobodySumsAreAQuestion) {
  const Numbers sum = add_addends("s0/m0/output/layers.0.fc2/0");
  add_reference("s0/m0/output/layers.0/0", sum);
  add_candidate("s0/m0/output/layers.0/0", 0, sum);
  add_candidate("s0/m0/output/layers.0/0", 1, sum);
  add_addends("s0/m0/output/layers.1.fc2/0");
  const std::vector<SettledClass> settled = settle();
  ASSERT_THAT(settled, SizeIs(1));
  EXPECT_EQ(settled.front().settlement, Settlement::kUsed);
  EXPECT_EQ(settled.front().questions, 1U);
  EXPECT_WORDING(settled.front().sentence());
  ASSERT_TRUE(report_.diverged());
  EXPECT_EQ(to_string(report_.tensors[*report_.first_divergence].id),
            "s0/m0/output/layers.1.fc2/0");
}

// A forced pass gets one of them as the tensor's value, unless it is told.
TEST_F(SettleTest, WhatIsUsedIsHandedOverInAFile) {
  const Numbers sum = add_addends("s0/m0/output/layers.0.fc2/0");
  add_reference("s0/m0/output/layers.0/0", sum);
  add_candidate("s0/m0/output/layers.0/0", 0, sum);
  add_candidate("s0/m0/output/layers.0/0", 1, sum);
  const Trace reference = reference_.write();
  const std::string candidate = candidate_.write().directory();
  const SettledDims settled = settled_dims(reference.directory(), candidate);
  const std::string file = folder_ / "settled.json";
  std::ofstream(file) << to_text(settled);
  EXPECT_EQ(read_settled_dims(file), settled);
  Trace placed = Trace::open(candidate);
  place_settled(read_settled_dims(file), placed);
  EXPECT_FALSE(diff(reference, placed).diverged());
}

TEST_F(SettleTest, AFileThatIsNoneIsRefusedWithItsName) {
  const std::string file = folder_ / "settled.json";
  for (const std::string text : {"", "{}", "{\"format\": \"another\"}"}) {
    std::ofstream(file) << text;
    EXPECT_THAT([&] { static_cast<void>(read_settled_dims(file)); },
                ThrowsMessage<FormatError>(HasSubstr(file + ": it holds no placements")));
  }
}

TEST_F(SettleTest, WhatNothingExplainsStaysAFinding) {
  const std::string id = "s0/m0/output/layers.0.norm/0";
  add_reference(id, noise(32, 1));
  add_candidate(id, 0, noise(32, 2));
  add_candidate(id, 1, noise(32, 3));
  const std::vector<SettledClass> settled = settle();
  ASSERT_THAT(settled, SizeIs(1));
  EXPECT_EQ(settled.front().settlement, Settlement::kUnexplained);
  EXPECT_TRUE(report_.diverged());
}

TEST_F(SettleTest, CopiesThatAgreeAreNotAskedAbout) {
  const Numbers values = noise(32, 1);
  add_reference("s0/m0/output/norm/0", values);
  add_candidate("s0/m0/output/norm/0", 0, values);
  add_candidate("s0/m0/output/norm/0", 1, values);
  EXPECT_THAT(settle(), IsEmpty());
  EXPECT_FALSE(report_.diverged());
}

// Symptom: behind a missing reduction, copies differed; the report listed as news that they lie as
// guessed.
TEST_F(SettleTest, AGuessThatTheValuesConfirmIsNotListed) {
  const Numbers values = noise(32, 1);
  Numbers wrong = values;
  wrong.back() += 1e-3;
  add_reference("s0/m0/output/norm/0", values);
  add_candidate("s0/m0/output/norm/0", 0, values);
  add_candidate("s0/m0/output/norm/0", 1, wrong);
  EXPECT_THAT(settle(), IsEmpty());
  EXPECT_TRUE(report_.diverged());
}

// Symptom: a row-parallel layer whose program adds up its outputs right behind it was a finding.
TEST_F(SettleTest, AddendsThatRanksAddUpAtOnceAreUsed) {
  const Numbers sum = add_addends("s0/m0/output/layers.0.fc2/0");
  add_reference("s0/m0/output/layers.0/0", sum);
  add_candidate("s0/m0/output/layers.0/0", 0, sum);
  add_candidate("s0/m0/output/layers.0/0", 1, sum);
  const std::vector<SettledClass> settled = settle();
  ASSERT_THAT(settled, SizeIs(1));
  EXPECT_EQ(settled.front().settlement, Settlement::kUsed);
  EXPECT_FALSE(report_.diverged());
}

// Symptom: a packed sequence has as many rows on each rank as its samples have tokens; the ranks
// "contradicted" each other.
TEST_F(SettleTest, RowsOfWhichNobodySaysWhoseTheyAreAreNotCompared) {
  const Numbers values = noise(32, 1);
  add_reference("s0/m0/input/rnn/0", values);
  add_candidate("s0/m0/input/rnn/0", 0, Numbers(values.begin(), values.begin() + 12));
  add_candidate("s0/m0/input/rnn/0", 1, Numbers(values.begin() + 12, values.end()));
  add_cut("s0/m0/output/head/0", noise(32, 2), false);
  static_cast<void>(settle());
  const TensorVerdict& tensor = report_.tensors.front();
  EXPECT_FALSE(tensor.is_finding());
  EXPECT_EQ(tensor.status(), Status::kNotJudged);
  ASSERT_EQ(report_.not_seen.size(), 1U);
  EXPECT_EQ(report_.not_seen.front().kind, NotSeenKind::kSamples);
}

// The other side of that line.
TEST_F(SettleTest, RowsThatAreMissingAltogetherStayAFinding) {
  const Numbers values = noise(32, 1);
  add_reference("s0/m0/input/rnn/0", values);
  add_candidate("s0/m0/input/rnn/0", 0, Numbers(values.begin(), values.begin() + 12));
  add_candidate("s0/m0/input/rnn/0", 1, Numbers(values.begin() + 16, values.end()));
  static_cast<void>(settle());
  EXPECT_TRUE(report_.tensors.front().is_finding());
}

TEST_F(SettleTest, WhatIsDeclaredIsNeverReplaced) {
  add_cut("s0/m0/output/layers.0.fc1/0", noise(32, 1), false);
  EXPECT_THAT(settle(), IsEmpty());
  EXPECT_TRUE(report_.diverged());
}

}  // namespace
}  // namespace ttrace
