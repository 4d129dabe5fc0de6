// Which samples of the reference a candidate's are, and where its records then lie.
#include "trace/samples/align_samples.h"

#include "support/temporary_directory.h"
#include "trace/merge/merge.h"
#include "trace/merge/shard_index.h"
#include "trace_builder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

namespace ttrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using testing::Tensor;
using testing::TraceBuilder;

constexpr auto kTokens = "data/tokens/0";
constexpr auto kHidden = "output/fc/0";
constexpr std::int64_t kPositions = 4;

std::string id_of(int microbatch, const std::string& name) {
  return "s0/m" + std::to_string(microbatch) + "/" + name;
}

// A token, or a hidden value, of a sample.
double value_of(std::int64_t sample, std::int64_t position) {
  return static_cast<double>(100 * sample + position);
}

std::vector<std::int64_t> counting(std::int64_t first, std::int64_t count) {
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(count));
  std::iota(numbers.begin(), numbers.end(), first);
  return numbers;
}

// What one rank has of a micro-batch: these samples, claimed to be those from `first` of `count`,
// and these positions of each.
struct Hand {
  int rank = 0;
  int microbatch = 0;
  std::vector<std::int64_t> samples;
  std::int64_t first = 0;
  std::int64_t count = 0;
  std::vector<std::int64_t> positions = counting(0, kPositions);
};

DimPlacement claimed(const Hand& hand) {
  return index_map(counting(hand.first, std::ssize(hand.samples)), hand.count);
}

// [b, s], or [s, b] where `is_turned`.
Tensor tensor_of(const Hand& hand,
                 const std::string& name,
                 ElementType type,
                 bool is_turned = false) {
  Tensor tensor{.id = id_of(hand.microbatch, name), .values = {}, .type = type};
  const auto samples = std::ssize(hand.samples);
  const auto positions = std::ssize(hand.positions);
  const DimPlacement cut = index_map(hand.positions, kPositions);
  if (is_turned) {
    tensor.shape = {positions, samples};
    tensor.placement.dims = {cut, claimed(hand)};
    for (const std::int64_t position : hand.positions) {
      for (const std::int64_t sample : hand.samples) {
        tensor.values.push_back(value_of(sample, position));
      }
    }
  } else {
    tensor.shape = {samples, positions};
    tensor.placement.dims = {claimed(hand), cut};
    for (const std::int64_t sample : hand.samples) {
      for (const std::int64_t position : hand.positions) {
        tensor.values.push_back(value_of(sample, position));
      }
    }
  }
  tensor.samples = SampleDim{is_turned ? 1U : 0U, hand.count, 1};
  return tensor;
}

// Tokens, and a hidden tensor that follows from them.
void add(TraceBuilder& trace, const Hand& hand) {
  trace.add(hand.rank, tensor_of(hand, kTokens, ElementType::kI64));
  trace.add(hand.rank, tensor_of(hand, kHidden, ElementType::kF32, true));
}

Hand whole_batch(int microbatch, std::vector<std::int64_t> samples) {
  const std::int64_t count = std::ssize(samples);
  return {.microbatch = microbatch, .samples = std::move(samples), .count = count};
}

class AlignSamples : public ::testing::Test {
 protected:
  Trace reference(const std::vector<std::vector<std::int64_t>>& microbatches) {
    for (std::size_t i = 0; i < microbatches.size(); ++i) {
      add(of_reference_, whole_batch(static_cast<int>(i), microbatches[i]));
    }
    return of_reference_.write();
  }
  static std::vector<double> merged(const Trace& trace, const std::string& id) {
    const ShardIndex index(trace);
    const auto shards = index.of(parse_tensor_id(id));
    if (shards.empty()) {
      return {};
    }
    const MergeResult result = merge(shards);
    EXPECT_THAT(result.findings, IsEmpty()) << id << ": " << result.why_absent();
    std::vector<double> values(static_cast<std::size_t>(element_count(result.shape)));
    to_double(result.type, result.bytes.data(), std::ssize(values), values.data());
    return values;
  }
  void expect_placed(const Trace& left, const Trace& right, int microbatches) {
    for (int i = 0; i < microbatches; ++i) {
      for (const char* const name : {kTokens, kHidden}) {
        EXPECT_EQ(merged(right, id_of(i, name)), merged(left, id_of(i, name))) << name << i;
      }
    }
  }
  TraceBuilder candidate(int ranks) { return {folder_.path() + "/c", "candidate", ranks, "dp"}; }

  testing::TemporaryDirectory folder_;
  TraceBuilder of_reference_{folder_.path() + "/r", "reference"};
};

TEST_F(AlignSamples, SamplesInTheirOwnPlaceStayThere) {
  const Trace left = reference({{0, 1, 2, 3}});
  TraceBuilder builder = candidate(2);
  add(builder, {.rank = 0, .samples = {0, 1}, .first = 0, .count = 4});
  add(builder, {.rank = 1, .samples = {2, 3}, .first = 2, .count = 4});
  Trace right = builder.write();
  const SampleAlignment alignment = align_samples(left, right);
  EXPECT_THAT(alignment.remarks, IsEmpty());
  EXPECT_THAT(alignment.findings, IsEmpty());
  expect_placed(left, right, 1);
}

TEST_F(AlignSamples, DealtSamplesArePutInOrder) {
  const Trace left = reference({{0, 1, 2, 3}});
  TraceBuilder builder = candidate(2);
  add(builder, {.rank = 0, .samples = {0, 2}, .first = 0, .count = 4});
  add(builder, {.rank = 1, .samples = {1, 3}, .first = 2, .count = 4});
  Trace right = builder.write();
  const SampleAlignment alignment = align_samples(left, right);
  ASSERT_THAT(alignment.remarks, SizeIs(1));
  EXPECT_EQ(alignment.remarks.front(),
            "samples of micro-batch 0 are dealt as torch's DistributedSampler deals them (rank 0 "
            "has 0, 2; rank 1 has 1, 3); they were put in the reference's order");
  expect_placed(left, right, 1);
}

// Symptom: of positions that a program cuts over ranks without a declaration, "samples 4-7 are read
// by no rank". The values of the ranks say where they lie, which settle.h finds out.
TEST_F(AlignSamples, RanksThatOnlySeemToHoldTheSameSamplesAreLeftAlone) {
  const Trace left = reference({{0, 1, 2, 3}});
  for (const bool undeclared : {true, false}) {
    TraceBuilder builder(
        folder_.path() + (undeclared ? "/undeclared" : "/declared"), "candidate", 2, "tp");
    for (int rank = 0; rank < 2; ++rank) {
      Tensor tokens = tensor_of(
          {.samples = counting(2 * rank, 2), .first = 0, .count = 2}, kTokens, ElementType::kI64);
      tokens.undeclared = undeclared;
      builder.add(rank, tokens);
    }
    Trace right = builder.write();
    EXPECT_THAT(align_samples(left, right).findings, SizeIs(undeclared ? 0 : 1));
  }
}

TEST_F(AlignSamples, RanksThatHoldOtherPositionsOfASampleShareItsPlace) {
  const Trace left = reference({{0, 1, 2, 3}});
  TraceBuilder builder = candidate(4);
  builder.set_axes({{"cp", 2}, {"dp", 2}});
  const std::vector<std::int64_t> positions[] = {{0, 3}, {1, 2}};  // zig-zag
  for (int rank = 0; rank < 4; ++rank) {
    const int dp = rank / 2;
    add(builder,
        {.rank = rank,
         .samples = dp == 0 ? std::vector<std::int64_t>{3, 1} : std::vector<std::int64_t>{0, 2},
         .first = 2 * dp,
         .count = 4,
         .positions = positions[rank % 2]});
  }
  Trace right = builder.write();
  EXPECT_THAT(align_samples(left, right).findings, IsEmpty());
  expect_placed(left, right, 1);
}

TEST_F(AlignSamples, UnevenRanksHaveTheirPlaces) {
  const Trace left = reference({{0, 1, 2, 3, 4, 5, 6}});
  TraceBuilder builder = candidate(2);
  add(builder, {.rank = 0, .samples = {0, 1, 2, 3}, .first = 0, .count = 8});
  add(builder, {.rank = 1, .samples = {4, 5, 6}, .first = 3, .count = 6});
  Trace right = builder.write();
  EXPECT_THAT(align_samples(left, right).findings, IsEmpty());
  expect_placed(left, right, 1);
}

TEST_F(AlignSamples, SmallMicrobatchesMakeUpALargeOne) {
  of_reference_.add(0, {.id = id_of(0, "loss/loss/0"), .values = {2}});
  const Trace left = reference({{0, 1, 2, 3}});
  TraceBuilder builder = candidate(1);
  add(builder, whole_batch(0, {0, 1}));
  builder.add(0, {.id = id_of(0, "param_grad/fc.weight/0"), .values = {1, 2}});
  builder.add(0, {.id = id_of(0, "output/table/0"), .values = {5, 6}});
  builder.add(0, {.id = id_of(0, "loss/loss/0"), .values = {1}});
  add(builder, whole_batch(1, {2, 3}));
  builder.add(0, {.id = id_of(1, "param_grad/fc.weight/0"), .values = {10, 20}});
  builder.add(0, {.id = id_of(1, "output/table/0"), .values = {5, 6}});
  builder.add(0, {.id = id_of(1, "loss/loss/0"), .values = {3}});
  Trace right = builder.write();
  const SampleAlignment alignment = align_samples(left, right);
  EXPECT_THAT(alignment.remarks,
              ElementsAre("the candidate's micro-batches 0, 1 are the reference's micro-batch 0"));
  expect_placed(left, right, 1);
  EXPECT_THAT(merged(right, id_of(0, "param_grad/fc.weight/0")), ElementsAre(11, 22));
  EXPECT_THAT(merged(right, id_of(0, "output/table/0")), ElementsAre(5, 6));
  EXPECT_TRUE(alignment.lacks(parse_tensor_id(id_of(0, "loss/loss/0"))));
  EXPECT_THAT(merged(right, id_of(1, kHidden)), IsEmpty());
}

TEST_F(AlignSamples, ALargeMicrobatchIsSeveralSmallOnes) {
  of_reference_.add(0, {.id = id_of(1, "param_grad/fc.weight/0"), .values = {10, 20}});
  const Trace left = reference({{0, 1}, {2, 3}});
  TraceBuilder builder = candidate(1);
  add(builder, whole_batch(0, {0, 1, 2, 3}));
  builder.add(0, {.id = id_of(0, "param_grad/fc.weight/0"), .values = {11, 22}});
  Trace right = builder.write();
  const SampleAlignment alignment = align_samples(left, right);
  EXPECT_THAT(alignment.findings, IsEmpty());
  expect_placed(left, right, 2);
  EXPECT_TRUE(alignment.lacks(parse_tensor_id(id_of(1, "param_grad/fc.weight/0"))));
}

TEST_F(AlignSamples, MicrobatchesMayChangePlaces) {
  const Trace left = reference({{0, 1}, {2, 3}});
  TraceBuilder builder = candidate(1);
  add(builder, whole_batch(0, {2, 3}));
  builder.add(0, {.id = id_of(0, "loss/loss/0"), .values = {7}});
  add(builder, whole_batch(1, {0, 1}));
  builder.add(0, {.id = id_of(1, "loss/loss/0"), .values = {8}});
  Trace right = builder.write();
  EXPECT_THAT(align_samples(left, right).findings, IsEmpty());
  expect_placed(left, right, 2);
  EXPECT_THAT(merged(right, id_of(0, "loss/loss/0")), ElementsAre(8));
}

TEST_F(AlignSamples, WhatMayHoldSamplesUnsaidIsNotCompared) {
  const auto unsaid = [](std::vector<double> values) {
    return Tensor{.id = id_of(0, "output/scores/0"), .values = std::move(values)};
  };
  const auto gradient = [](std::vector<double> values) {
    return Tensor{.id = id_of(0, "grad_output/scores/0"), .values = std::move(values)};
  };
  const Tensor table{.id = id_of(0, "output/table/0"), .values = {5, 6}};
  of_reference_.add(0, unsaid({1, 2})).add(0, gradient({3, 4})).add(0, table);
  const Trace left = reference({{0, 1}});
  TraceBuilder builder = candidate(1);
  add(builder, whole_batch(0, {1, 0}));
  builder.add(0, unsaid({2, 1})).add(0, gradient({4, 3})).add(0, table);
  Trace right = builder.write();
  const SampleAlignment alignment = align_samples(left, right);
  EXPECT_TRUE(alignment.lacks(parse_tensor_id(id_of(0, "output/scores/0"))));
  EXPECT_TRUE(alignment.lacks(parse_tensor_id(id_of(0, "grad_output/scores/0"))));
  EXPECT_THAT(alignment.unseen, ElementsAre(HasSubstr("2 tensors were not compared")));
  EXPECT_THAT(merged(right, id_of(0, "output/table/0")), ElementsAre(5, 6));
}

TEST_F(AlignSamples, EqualSamplesAreDealtInOrder) {
  const Trace left = reference({{5, 5, 5, 1}});
  TraceBuilder builder = candidate(2);
  add(builder, {.rank = 0, .samples = {5, 5}, .first = 0, .count = 4});
  add(builder, {.rank = 1, .samples = {1, 5}, .first = 2, .count = 4});
  Trace right = builder.write();
  EXPECT_THAT(align_samples(left, right).findings, IsEmpty());
  expect_placed(left, right, 1);
}

TEST_F(AlignSamples, RepeatedAndMissingSamplesAreNamed) {
  const Trace left = reference({{0, 1, 2, 3}});
  TraceBuilder builder = candidate(2);
  add(builder, {.rank = 0, .samples = {0, 1}, .first = 0, .count = 4});
  add(builder, {.rank = 1, .samples = {0, 1}, .first = 2, .count = 4});
  Trace right = builder.write();
  const SampleAlignment alignment = align_samples(left, right);
  ASSERT_THAT(alignment.findings, SizeIs(1));
  EXPECT_EQ(to_string(alignment.findings.front().id), id_of(0, kTokens));
  // Symptom: where rank 1 read samples of its own, main gradients were "made here" as well.
  EXPECT_TRUE(alignment.has_other_sums(0));
  EXPECT_EQ(alignment.findings.front().sentence,
            "the candidate's rank 1 reads samples 0, 1, which rank 0 reads as well; samples 2, 3 "
            "are read by no rank");
  EXPECT_THAT(alignment.findings.front().ranks, ElementsAre(1));
  EXPECT_TRUE(alignment.lacks(parse_tensor_id(id_of(0, kHidden))));
}

TEST_F(AlignSamples, UnknownSamplesAreNamed) {
  const Trace left = reference({{0, 1, 2, 3}});
  TraceBuilder builder = candidate(2);
  add(builder, {.rank = 0, .samples = {0, 2}, .first = 0, .count = 4});
  add(builder, {.rank = 1, .samples = {8, 9}, .first = 2, .count = 4});
  Trace right = builder.write();
  const SampleAlignment alignment = align_samples(left, right);
  ASSERT_THAT(alignment.findings, SizeIs(1));
  EXPECT_EQ(alignment.findings.front().sentence,
            "samples 1, 3 are read by no rank; the candidate's rank 1 reads 2 samples that the "
            "reference does not read in this step");
}

TEST_F(AlignSamples, ADamagedSampleIsNamedAndItsDataAreComparedInPlace) {
  const Trace left = reference({{0, 1, 2, 3}});
  TraceBuilder builder = candidate(1);
  add(builder, whole_batch(0, {0, 1, 9, 3}));
  Trace right = builder.write();
  const SampleAlignment alignment = align_samples(left, right);
  ASSERT_THAT(alignment.findings, SizeIs(1));
  EXPECT_EQ(alignment.findings.front().sentence,
            "sample 2 is read by no rank; the candidate's rank 0 reads 1 sample that the reference "
            "does not read in this step");
  EXPECT_THAT(merged(right, id_of(0, kTokens))[2 * kPositions], value_of(9, 0));
  EXPECT_TRUE(alignment.lacks(parse_tensor_id(id_of(0, kHidden))));
}

// Another precision changes them, and a bound says how far they may differ.
TEST_F(AlignSamples, OtherFloatingPointInputsKeepTheirPlace) {
  const auto input = [](double last) {
    return Tensor{
        .id = id_of(0, "input/model/0"), .values = {1, 2, last}, .samples = SampleDim{0, 3, 1}};
  };
  of_reference_.add(0, input(3));
  const Trace left = of_reference_.write();
  TraceBuilder builder = candidate(1);
  builder.add(0, input(3.5));
  Trace right = builder.write();
  EXPECT_THAT(align_samples(left, right).findings, IsEmpty());
  EXPECT_THAT(merged(right, id_of(0, "input/model/0")), ElementsAre(1, 2, 3.5));
}

TEST_F(AlignSamples, ATensorThatContradictsTheOthersDoesNotDecide) {
  const auto labels = [](std::vector<double> values) {
    const auto count = std::ssize(values);
    return Tensor{.id = id_of(0, "data/labels/0"),
                  .values = std::move(values),
                  .type = ElementType::kI64,
                  .samples = SampleDim{0, count, 1}};
  };
  of_reference_.add(0, labels({7, 7, 8, 8}));
  const Trace left = reference({{0, 1, 2, 3}});
  TraceBuilder builder = candidate(1);
  add(builder, whole_batch(0, {3, 2, 1, 0}));
  builder.add(0, labels({7, 7, 8, 8}));
  Trace right = builder.write();
  EXPECT_THAT(align_samples(left, right).findings, IsEmpty());
  expect_placed(left, right, 1);
  EXPECT_THAT(merged(right, id_of(0, "data/labels/0")), ElementsAre(8, 8, 7, 7));
}

TEST_F(AlignSamples, WithoutACommonSampleNothingOfAMicrobatchIsCompared) {
  const Trace left = reference({{0, 1, 2, 3}});
  TraceBuilder builder = candidate(1);
  add(builder, whole_batch(0, {10, 11}));
  builder.add(0, {.id = "s0/main_grad/fc.weight/0", .values = {1, 2}});
  add(builder, whole_batch(1, {12, 13}));
  Trace right = builder.write();
  const SampleAlignment alignment = align_samples(left, right);
  EXPECT_THAT(alignment.findings, IsEmpty());
  ASSERT_THAT(alignment.unseen, SizeIs(1));
  EXPECT_THAT(alignment.unseen.front(), HasSubstr("no sample that the candidate reads"));
  EXPECT_TRUE(alignment.has_other_sums(0));
  EXPECT_FALSE(alignment.has_other_sums(1));
  EXPECT_FALSE(alignment.lacks(parse_tensor_id("s0/main_grad/fc.weight/0")));
  EXPECT_THAT(merged(right, "s0/main_grad/fc.weight/0"), ElementsAre(1, 2));
  EXPECT_THAT(merged(right, id_of(0, kHidden)), IsEmpty());
}

TEST_F(AlignSamples, OtherSamplesInTheSameMicrobatchesAreAFindingInEach) {
  const Trace left = reference({{0, 1}, {2, 3}});
  TraceBuilder builder = candidate(1);
  add(builder, whole_batch(0, {10, 11}));
  add(builder, whole_batch(1, {12, 13}));
  Trace right = builder.write();
  const SampleAlignment alignment = align_samples(left, right);
  EXPECT_THAT(alignment.findings, SizeIs(2));
  EXPECT_THAT(alignment.unseen, IsEmpty());
  EXPECT_THAT(merged(right, id_of(0, kTokens)), SizeIs(2 * kPositions));
}

TEST_F(AlignSamples, EdgesAndSumsGoWithTheirMicrobatch) {
  const Trace left = reference({{0, 1}, {2, 3}});
  TraceBuilder builder = candidate(1);
  add(builder, whole_batch(0, {2, 3}));
  add(builder, whole_batch(1, {0, 1}));
  builder.edge(0, id_of(0, "input/fc/0"), id_of(0, "output/a/0"));
  builder.sum(0, {parse_tensor_id(id_of(0, kHidden)), ElementType::kF32, 2, 1.0});
  Trace right = builder.write();
  static_cast<void>(align_samples(left, right));
  const RankFile& file = right.steps().front().ranks.front();
  ASSERT_THAT(file.edges(), SizeIs(1));
  EXPECT_EQ(file.edges().front().consumer.microbatch, 1);
  EXPECT_EQ(file.edges().front().producer.microbatch, 1);
  ASSERT_THAT(file.sums(), SizeIs(1));
  EXPECT_EQ(file.sums().front().id.microbatch, 1);
}

}  // namespace
}  // namespace ttrace
