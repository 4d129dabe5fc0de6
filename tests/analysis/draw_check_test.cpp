// Random numbers: what contradicts itself, and what nobody could follow.
#include "analysis/checks/draw_check.h"

#include "analysis/diff.h"
#include "analysis/trace_builder.h"
#include "support/temporary_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace ttrace {
namespace {

using ::testing::HasSubstr;
using testing::kOutput;
using testing::part;
using testing::TemporaryDirectory;
using testing::Tensor;
using testing::TraceBuilder;
using testing::wavy;

const char* const kMask = "s0/m0/draw/drop/0";
const char* const kData = "s0/draw/step.bernoulli_/0";

// Without pattern, from a generator of its own.
std::vector<double> mask(std::size_t count, unsigned seed) {
  std::vector<double> values(count);
  unsigned state = seed * 2654435761U + 1U;
  for (double& value : values) {
    state = state * 1664525U + 1013904223U;
    value = state >> 31U;
  }
  return values;
}

std::vector<double> joined(std::vector<double> first, const std::vector<double>& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

class DrawCheck : public ::testing::Test {
 protected:
  static Tensor drawn(std::vector<double> values, Placement placement = {}) {
    Tensor tensor{kMask, std::move(values), ElementType::kBool};
    tensor.shape = {static_cast<std::int64_t>(tensor.values.size())};
    tensor.placement = std::move(placement);
    return tensor;
  }
  // As a step draws it, outside of modules.
  static Tensor data(std::vector<double> values, Placement placement = {}) {
    Tensor tensor = drawn(std::move(values), std::move(placement));
    tensor.id = kData;
    return tensor;
  }
  TraceBuilder ranks(const std::string& axis) {
    return {directory_ / "candidate", "candidate", 2, axis};
  }
  // The reference has drawn `values`, and then made an output.
  TraceBuilder& reference(std::vector<double> values) {
    return reference_.add(0, drawn(std::move(values))).add(0, {kOutput, wavy(8)});
  }
  Report compare(TraceBuilder& candidate) {
    const Trace left = reference_.write();
    const Trace right = candidate.write();
    return diff(left, right, {});
  }
  static const TensorVerdict& verdict(const Report& report, const std::string& id) {
    for (const TensorVerdict& tensor : report.tensors) {
      if (to_string(tensor.id) == id) {
        return tensor;
      }
    }
    throw std::runtime_error("no verdict on " + id);
  }

  TemporaryDirectory directory_;
  TraceBuilder reference_{directory_ / "reference", "reference"};
};

// Symptom: with one seed on all ranks of sequence parallelism, every one dropped the same elements
// of its own positions, and no check said so.
TEST_F(DrawCheck, RanksWithDifferentPartsMustNotDrawTheSame) {
  TraceBuilder candidate = ranks("sp");
  candidate.add(0, drawn(mask(64, 1), part(128, 0, 2)));
  candidate.add(1, drawn(mask(64, 1), part(128, 1, 2)));
  candidate.add_everywhere({kOutput, wavy(8)});
  reference(joined(mask(64, 1), mask(64, 1)));
  const Report report = compare(candidate);
  ASSERT_TRUE(report.diverged());
  const TensorVerdict& found = report.tensors[*report.first_divergence];
  EXPECT_EQ(to_string(found.id), kMask);
  EXPECT_EQ(found.symptom(), Symptom::kSameDraws);
  EXPECT_EQ(found.ranks(), (std::vector<int>{0, 1}));
}

TEST_F(DrawCheck, RanksWithDifferentSamplesMayDrawTheSameAndANoteSaysSo) {
  TraceBuilder candidate = ranks("dp");
  candidate.add(0, drawn(mask(64, 1), part(128, 0, 2)));
  candidate.add(1, drawn(mask(64, 1), part(128, 1, 2)));
  candidate.add_everywhere({kOutput, wavy(8)});
  reference(joined(mask(64, 1), mask(64, 1)));
  const Report report = compare(candidate);
  EXPECT_FALSE(report.diverged());
  EXPECT_THAT(report.notes,
              ::testing::Contains(HasSubstr("the same random numbers for different samples")));
}

TEST_F(DrawCheck, OtherNumbersAndShortMasksAreNoFinding) {
  for (const std::size_t size : {std::size_t{64}, std::size_t{4}}) {
    TemporaryDirectory folder;
    TraceBuilder left(folder / "reference", "reference");
    TraceBuilder right(folder / "candidate", "candidate", 2, "sp");
    const auto length = static_cast<std::int64_t>(2 * size);
    const std::vector<double> second = size == 4 ? mask(size, 1) : mask(size, 2);
    right.add(0, drawn(mask(size, 1), part(length, 0, 2)));
    right.add(1, drawn(second, part(length, 1, 2)));
    left.add(0, drawn(joined(mask(size, 1), second)));
    const Trace reference = left.write();
    const Trace candidate = right.write();
    EXPECT_FALSE(diff(reference, candidate, {}).diverged()) << size;
  }
}

TEST_F(DrawCheck, ReplicasThatDrawOtherNumbersAreNamed) {
  TraceBuilder candidate = ranks("tp");
  candidate.add(0, drawn(mask(64, 1)));
  candidate.add(1, drawn(mask(64, 2)));
  candidate.add_everywhere({kOutput, wavy(8)});
  reference(mask(64, 1));
  const Report report = compare(candidate);
  ASSERT_TRUE(report.diverged());
  const TensorVerdict& found = report.tensors[*report.first_divergence];
  EXPECT_EQ(to_string(found.id), kMask);
  EXPECT_EQ(found.symptom(), Symptom::kReplicasDisagree);
}

// Symptom: a right program with dropout was DIVERGED where nobody could follow its masks.
TEST_F(DrawCheck, WhatFollowsFromOtherNumbersIsNotJudged) {
  TraceBuilder candidate(directory_ / "candidate", "candidate");
  candidate.add(0, drawn(mask(64, 2))).add(0, {kOutput, wavy(8, 1.0)});
  reference(mask(64, 1));
  const Report report = compare(candidate);
  EXPECT_FALSE(report.diverged());
  EXPECT_EQ(verdict(report, kMask).status(), Status::kNotJudged);
  EXPECT_EQ(verdict(report, kOutput).status(), Status::kNotJudged);
  EXPECT_TRUE(verdict(report, kOutput).has(Excuse::kRandom));
}

TEST_F(DrawCheck, WhatComesBeforeThemOrContradictsItselfIsJudged) {
  const std::string before = "s0/m0/output/before/0";
  TraceBuilder candidate = ranks("tp");
  candidate.add_everywhere({before, wavy(8, 1.0)});
  candidate.add_everywhere(drawn({}));
  candidate.add(0, {kOutput, wavy(8, 1.0)}).add(1, {kOutput, wavy(8, 2.0)});
  reference_.add(0, {before, wavy(8)});
  reference({});
  const Report report = compare(candidate);
  EXPECT_TRUE(verdict(report, before).is_finding());
  EXPECT_TRUE(verdict(report, kOutput).is_finding());  // copies that differ
}

TEST_F(DrawCheck, ASideThatDrawsNothingIsAFindingUnlessTheOtherOneHasDrawsOfItsOwn) {
  TraceBuilder candidate(directory_ / "candidate", "candidate");
  candidate.add(0, {kOutput, wavy(8)});
  reference(mask(64, 1));
  const Report report = compare(candidate);
  EXPECT_EQ(verdict(report, kMask).status(), Status::kMissingInCandidate);
  TraceBuilder fused(directory_ / "fused", "candidate");
  Tensor other = drawn({});
  other.id = "s0/m0/draw/attention/0";
  fused.add(0, other).add(0, {kOutput, wavy(8)});
  const Trace left = Trace::open(directory_ / "reference");
  const Trace right = fused.write();
  const Report lenient = diff(left, right, {});
  EXPECT_EQ(verdict(lenient, kMask).status(), Status::kNotJudged);
  EXPECT_FALSE(lenient.diverged());
}

TEST_F(DrawCheck, TheReferenceFollowsWhatDiffersAndCanBeFollowed) {
  const Trace left = reference(mask(64, 1)).write();
  const auto must_follow = [&](const std::vector<double>& values, bool undeclared) {
    const TemporaryDirectory folder;
    TraceBuilder candidate(folder.path(), "candidate", 2, "tp");
    Tensor first = drawn(values);
    first.undeclared = undeclared;
    Tensor second = drawn(mask(values.size(), 3));
    second.undeclared = undeclared;
    candidate.add(0, first).add(1, undeclared ? second : first);
    const Trace right = candidate.write();
    return has_other_draws(Draws(left), Draws(right));
  };
  EXPECT_FALSE(must_follow(mask(64, 1), false));
  EXPECT_TRUE(must_follow(mask(64, 2), false));
  EXPECT_FALSE(must_follow(mask(32, 2), false));  // another shape
  EXPECT_FALSE(must_follow(mask(64, 2), true));   // nobody knows where it lies
}

TEST_F(DrawCheck, DataOfRanksLieBehindOneAnother) {
  TraceBuilder candidate = ranks("dp");
  candidate.add(0, data(mask(8, 1), part(16, 0, 2))).add(1, data(mask(8, 2), part(16, 1, 2)));
  const Trace trace = candidate.write();
  const auto drawn = Draws(trace).of(parse_tensor_id(kData));
  ASSERT_TRUE(drawn.has_value());
  EXPECT_EQ(drawn->shape, (std::vector<std::int64_t>{16}));
}

TEST_F(DrawCheck, DataThatAllRanksRepeatAreTheWhole) {
  TraceBuilder candidate = ranks("dp");
  candidate.add(0, data(mask(8, 1), part(16, 0, 2))).add(1, data(mask(8, 1), part(16, 1, 2)));
  const Trace trace = candidate.write();
  const Draws draws(trace);
  EXPECT_EQ(draws.of(parse_tensor_id(kData))->shape, (std::vector<std::int64_t>{8}));
  reference_.add(0, data(mask(8, 3)));
  const Trace other = reference_.write();
  EXPECT_EQ(data_of_its_own(Draws(other), draws), std::nullopt);
}

// Symptom: of programs with common seeds, one drew a batch more in its step, and the reference
// followed another step's data.
TEST_F(DrawCheck, NumbersThatTheReferenceDrawsElsewhereAreNotFollowed) {
  TraceBuilder candidate = ranks("dp");
  candidate.add(0, data(mask(64, 1), part(128, 0, 2))).add(1, data(mask(64, 2), part(128, 1, 2)));
  const Trace trace = candidate.write();
  Tensor later = data(mask(64, 2));
  later.id = "s0/draw/step.bernoulli_/0#1";
  reference_.add(0, data(mask(64, 1))).add(0, later);
  const Trace other = reference_.write();
  EXPECT_EQ(data_of_its_own(Draws(other), Draws(trace)), std::nullopt);
  EXPECT_FALSE(has_other_draws(Draws(other), Draws(trace)));
}

TEST_F(DrawCheck, PermutationsOfRanksNumberTheRowsOfAll) {
  TraceBuilder candidate = ranks("dp");
  for (const int rank : {0, 1}) {
    Tensor tensor{"s0/draw/step.randperm/0", {2, 0, 1}, ElementType::kI64};
    tensor.shape = {3};
    tensor.placement = part(6, rank, 2);
    if (rank == 1) {
      tensor.values = {1, 2, 0};
    }
    candidate.add(rank, tensor);
  }
  const Trace trace = candidate.write();
  const auto drawn = Draws(trace).of(parse_tensor_id("s0/draw/step.randperm/0"));
  ASSERT_TRUE(drawn.has_value());
  std::vector<std::int64_t> rows(6);
  std::memcpy(rows.data(), drawn->bytes.data(), drawn->bytes.size());
  EXPECT_EQ(rows, (std::vector<std::int64_t>{2, 0, 1, 4, 5, 3}));
}

// Symptom: a right program that draws its samples in other pieces than the reference diverged at
// tensors "missing in the candidate".
TEST_F(DrawCheck, DrawsOfDataAreNotCompared) {
  TraceBuilder candidate = ranks("dp");
  candidate.add(0, data(mask(8, 1), part(16, 0, 2))).add(1, data(mask(8, 2), part(16, 1, 2)));
  candidate.add_everywhere({kOutput, wavy(8)});
  reference_.add(0, {kOutput, wavy(8)});
  const Report report = compare(candidate);
  EXPECT_FALSE(report.diverged());
  EXPECT_EQ(report.tensors.size(), 1U);
}

TEST_F(DrawCheck, OtherDataAreNotJudgedWhereRanksDrawTheirOwn) {
  const char* const kInput = "s0/m0/data/x/0";
  for (const unsigned second : {1U, 2U}) {  // as the first rank, or other numbers
    TemporaryDirectory folder;
    TraceBuilder left(folder / "reference", "reference");
    TraceBuilder right(folder / "candidate", "candidate", 2, "dp");
    left.add(0, data(mask(16, 3))).add(0, {kInput, wavy(8)});
    right.add(0, data(mask(8, 1), part(16, 0, 2)));
    right.add(1, data(mask(8, second), part(16, 1, 2)));
    right.add_everywhere({kInput, std::vector<double>(8, 9.0)});
    const Trace reference = left.write();
    const Trace candidate = right.write();
    const Report report = diff(reference, candidate, {});
    EXPECT_EQ(report.diverged(), second == 1U);
    EXPECT_EQ(report.other_data.empty(), second == 1U) << report.other_data;
  }
}

}  // namespace
}  // namespace ttrace
