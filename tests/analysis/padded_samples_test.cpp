// Samples that the two programs pad to different lengths, and where their records then lie.
#include "support/temporary_directory.h"
#include "trace/merge/merge.h"
#include "trace/merge/shard_index.h"
#include "trace/samples/align_samples.h"
#include "trace/samples/padding.h"
#include "trace_builder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <optional>
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

constexpr double kPad = 0;
constexpr auto kTokens = "data/ids/0";
constexpr auto kHidden = "output/fc/0";
constexpr auto kFlat = "output/flat/0";

// The tokens of samples 0, 1, ...; the second but last is as short as a sample can be.
const std::vector<std::vector<double>> kSamples = {
    {11, 12, 13}, {21, 22, 23, 24, 25, 26}, {31, 32, 33, 34, 35}, {41, 42, 43, 44}, {51}, {61, 62}};

std::string id_of(int microbatch, const std::string& name) {
  return "s0/m" + std::to_string(microbatch) + "/" + name;
}

// What one rank reads: these samples, claimed to be those from `first` of `count`.
struct Hand {
  int rank = 0;
  int microbatch = 0;
  std::vector<std::int64_t> samples;
  std::int64_t first = 0;
  std::int64_t count = 0;
  std::int64_t width = 0;
  PaddedAt padded = PaddedAt::kEnd;
  int part = 0;  // of the hidden tensor's last dimension, of `parts`
  int parts = 1;
};

const Hand kAll = {.samples = {0, 1, 2, 3, 4, 5}, .count = 6, .width = 6};

std::vector<double> padded(const std::vector<double>& sample, const Hand& hand) {
  std::vector<double> row(static_cast<std::size_t>(hand.width), kPad);
  const std::size_t start = hand.padded == PaddedAt::kEnd ? 0 : row.size() - sample.size();
  std::copy(sample.begin(), sample.end(), row.begin() + static_cast<std::ptrdiff_t>(start));
  return row;
}

// Tokens [b, s], a hidden tensor [s, b, 2] and one of [b x s], whose padding no two programs share.
void add(TraceBuilder& trace, const Hand& hand, double noise = 0.0) {
  const auto rows = std::ssize(hand.samples);
  std::vector<std::int64_t> places(hand.samples.size());
  std::iota(places.begin(), places.end(), hand.first);
  const DimPlacement claimed = index_map(places, hand.count);
  const std::int64_t width = hand.width;
  const DimPlacement positions{width, width, {{0, 0, width}}};
  const int local = 2 / hand.parts;
  const DimPlacement features{local, 2, {{0, hand.part * local, local}}};
  Tensor tokens{.id = id_of(hand.microbatch, kTokens), .values = {}, .type = ElementType::kI64};
  Tensor hidden{.id = id_of(hand.microbatch, kHidden), .values = {}};
  Tensor flat{.id = id_of(hand.microbatch, kFlat), .values = {}};
  std::vector<std::int64_t> flat_places;
  for (std::int64_t position = 0; position < width; ++position) {
    for (const std::int64_t sample : hand.samples) {
      const double token = padded(kSamples.at(static_cast<std::size_t>(sample)),
                                  hand)[static_cast<std::size_t>(position)];
      for (int feature = 0; feature < local; ++feature) {
        hidden.values.push_back(token == kPad ? noise : token + hand.part * local + feature);
      }
    }
  }
  for (std::int64_t i = 0; const std::int64_t sample : hand.samples) {
    for (const double token : padded(kSamples.at(static_cast<std::size_t>(sample)), hand)) {
      flat_places.push_back((hand.first + i) * width + std::ssize(flat.values) % width);
      tokens.values.push_back(token);
      flat.values.push_back(token == kPad ? noise : 2 * token);
    }
    ++i;
  }
  tokens.shape = {rows, width};
  tokens.placement.dims = {claimed, positions};
  tokens.samples = SampleDim{0, hand.count, 1};
  hidden.shape = {width, rows, local};
  hidden.placement.dims = {positions, claimed, features};
  hidden.samples = SampleDim{1, hand.count, 1};
  flat.shape = {rows * width};
  flat.placement.dims = {index_map(flat_places, hand.count * width)};
  flat.samples = SampleDim{0, hand.count, width};
  hidden.undeclared = true;
  flat.undeclared = true;
  trace.add(hand.rank, tokens).add(hand.rank, hidden).add(hand.rank, flat);
}

class PaddedSamples : public ::testing::Test {
 protected:
  // All samples, in one micro-batch.
  Trace reference() {
    add(of_reference_, kAll);
    return of_reference_.write();
  }
  TraceBuilder candidate(int ranks) { return {folder_.path() + "/c", "candidate", ranks, "dp"}; }

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
  static void expect_placed(const Trace& left, const Trace& right, int microbatches) {
    for (int i = 0; i < microbatches; ++i) {
      for (const char* const name : {kTokens, kHidden, kFlat}) {
        EXPECT_EQ(merged(right, id_of(i, name)), merged(left, id_of(i, name))) << name << i;
      }
    }
  }

  testing::TemporaryDirectory folder_;
  TraceBuilder of_reference_{folder_.path() + "/r", "reference"};
};

// Symptom: samples "that the reference does not read", of ranks that pad to their own longest.
TEST_F(PaddedSamples, RanksWithShorterSamplesLieOnTheReference) {
  for (const PaddedAt side : {PaddedAt::kEnd, PaddedAt::kStart}) {
    const std::string folder = folder_.path() + (side == PaddedAt::kEnd ? "/end" : "/start");
    TraceBuilder of_reference(folder + "/r", "reference");
    Hand all = kAll;
    all.padded = side;
    add(of_reference, all);
    const Trace left = of_reference.write();
    TraceBuilder builder(folder + "/c", "candidate", 2, "dp");
    add(builder, {0, 0, {0, 2, 4}, 0, 6, 5, side});
    add(builder, {1, 0, {1, 3, 5}, 3, 6, 6, side});
    Trace right = builder.write();
    const SampleAlignment alignment = align_samples(left, right);
    EXPECT_THAT(alignment.findings, IsEmpty());
    EXPECT_THAT(alignment.unseen, IsEmpty());
    ASSERT_THAT(alignment.remarks, SizeIs(2));
    EXPECT_EQ(
        alignment.remarks.back(),
        "the reference pads the samples of micro-batch 0 to 6 positions, the candidate's rank "
        "0 to 5; padding was not compared");
    expect_placed(left, right, 1);
  }
}

TEST_F(PaddedSamples, PaddingIsNotCompared) {
  const Trace left = reference();
  TraceBuilder builder = candidate(1);
  add(builder, {.samples = {0, 1, 2, 3, 4, 5}, .count = 6, .width = 8}, 7.0);
  Trace right = builder.write();
  EXPECT_THAT(align_samples(left, right).findings, IsEmpty());
  const std::vector<double> flat = merged(right, id_of(0, kFlat));
  ASSERT_THAT(flat, SizeIs(36));
  EXPECT_EQ(std::vector<double>(flat.begin(), flat.begin() + 6),
            (std::vector<double>{22, 24, 26, 0, 0, 0}));
}

TEST_F(PaddedSamples, MicrobatchesOfOtherLengthsMakeUpALargeOne) {
  of_reference_.add(0, {.id = id_of(0, "param_grad/fc.weight/0"), .values = {11, 22}});
  const Trace left = reference();
  TraceBuilder builder = candidate(1);
  for (int i = 0; i < 3; ++i) {
    add(builder,
        {.microbatch = i, .samples = {2 * i, 2 * i + 1}, .count = 2, .width = i == 2 ? 2 : 7 - i});
    builder.add(0, {.id = id_of(i, "param_grad/fc.weight/0"), .values = {i == 0 ? 1.0 : 5.0, 0}});
  }
  Trace right = builder.write();
  EXPECT_THAT(align_samples(left, right).findings, IsEmpty());
  expect_placed(left, right, 1);
  EXPECT_THAT(merged(right, id_of(0, "param_grad/fc.weight/0")), ElementsAre(11, 0));
}

TEST_F(PaddedSamples, ALargeMicrobatchIsSeveralOfOtherLengths) {
  add(of_reference_, {.microbatch = 0, .samples = {0, 4}, .count = 2, .width = 3});
  add(of_reference_, {.microbatch = 1, .samples = {2, 3}, .count = 2, .width = 5});
  const Trace left = of_reference_.write();
  TraceBuilder builder = candidate(1);
  add(builder, {.samples = {3, 0, 2, 4}, .count = 4, .width = 5});
  Trace right = builder.write();
  EXPECT_THAT(align_samples(left, right).findings, IsEmpty());
  expect_placed(left, right, 2);
}

TEST_F(PaddedSamples, RanksOfOneSampleBorrowItsPaddingOnce) {
  const Trace left = reference();
  TraceBuilder builder = candidate(4);
  builder.set_axes({{"tp", 2}, {"dp", 2}});
  for (int rank = 0; rank < 4; ++rank) {
    const bool is_first = rank < 2;
    add(builder,
        {.rank = rank,
         .samples =
             is_first ? std::vector<std::int64_t>{0, 3, 4} : std::vector<std::int64_t>{1, 2, 5},
         .first = is_first ? 0 : 3,
         .count = 6,
         .width = is_first ? 4 : 6,
         .part = rank % 2,
         .parts = 2});
  }
  Trace right = builder.write();
  EXPECT_THAT(align_samples(left, right).findings, IsEmpty());
  expect_placed(left, right, 1);
}

TEST_F(PaddedSamples, SamplesThatLackTokensAreUnknown) {
  const Trace left = reference();
  TraceBuilder builder = candidate(1);
  add(builder, {.samples = {0, 1, 2, 3, 4, 5}, .count = 6, .width = 6});
  Trace whole = builder.write();
  EXPECT_TRUE(align_samples(left, whole).is_identity());
  TraceBuilder cut(folder_.path() + "/cut", "candidate");
  Tensor tokens{.id = id_of(0, kTokens), .values = {}, .type = ElementType::kI64, .shape = {6, 4}};
  for (const auto& sample : kSamples) {
    for (std::size_t i = 0; i < 4; ++i) {
      tokens.values.push_back(i < sample.size() ? sample[i] : kPad);
    }
  }
  tokens.samples = SampleDim{0, 6, 1};
  cut.add(0, tokens);
  Trace right = cut.write();
  const SampleAlignment alignment = align_samples(left, right);
  ASSERT_THAT(alignment.findings, SizeIs(1));
  EXPECT_THAT(alignment.findings.front().sentence, HasSubstr("samples 1, 2 are read by no rank"));
}

// A forced pass keeps the candidate alone.
TEST_F(PaddedSamples, BorrowedValuesOutliveTheReference) {
  std::optional<Trace> left = reference();
  TraceBuilder builder = candidate(2);
  add(builder, {0, 0, {0, 2, 4}, 0, 6, 5});
  add(builder, {1, 0, {1, 3, 5}, 3, 6, 6});
  Trace right = builder.write();
  EXPECT_THAT(align_samples(*left, right).findings, IsEmpty());
  const std::vector<double> expected = merged(*left, id_of(0, kHidden));
  left.reset();
  EXPECT_EQ(merged(right, id_of(0, kHidden)), expected);
}

// Positions that a program divides by code of its own, of which nobody said where they lie.
TEST_F(PaddedSamples, PositionsThatRanksDivideAreNoPadding) {
  const Trace left = reference();
  TraceBuilder builder(folder_.path() + "/c", "candidate", 2, "cp");
  for (int rank = 0; rank < 2; ++rank) {
    Tensor tokens{
        .id = id_of(0, kTokens), .values = {}, .type = ElementType::kI64, .shape = {6, 3}};
    for (std::int64_t sample = 0; sample < 6; ++sample) {
      const std::vector<double> row = padded(kSamples[static_cast<std::size_t>(sample)], kAll);
      tokens.values.insert(tokens.values.end(), row.begin() + 3 * rank, row.begin() + 3 * rank + 3);
    }
    tokens.samples = SampleDim{0, 6, 1};
    tokens.undeclared = true;
    builder.add(rank, tokens);
  }
  Trace right = builder.write();
  const SampleAlignment alignment = align_samples(left, right);
  EXPECT_THAT(alignment.findings, IsEmpty());
  EXPECT_TRUE(alignment.is_identity());
}

TEST_F(PaddedSamples, WhatIsOfAnotherLengthForOtherReasonsIsNotCompared) {
  const auto other = [](std::int64_t size) {
    return Tensor{.id = id_of(0, "output/odd/0"),
                  .values = std::vector<double>(static_cast<std::size_t>(6 * size), 1.0),
                  .shape = {6, size},
                  .samples = SampleDim{0, 6, 1}};
  };
  of_reference_.add(0, other(9));
  const Trace left = reference();
  TraceBuilder builder = candidate(1);
  add(builder, {.samples = {0, 1, 2, 3, 4, 5}, .count = 6, .width = 8});
  builder.add(0, other(5));
  Trace right = builder.write();
  const SampleAlignment alignment = align_samples(left, right);
  EXPECT_TRUE(alignment.lacks(parse_tensor_id(id_of(0, "output/odd/0"))));
  EXPECT_THAT(alignment.unseen, ElementsAre(HasSubstr("1 tensor was not compared")));
  expect_placed(left, right, 1);
}

// Symptom: in a T5 that has four samples of four positions on a rank, overlaps in the table of
// positions x positions, which had been taken for one of samples.
TEST_F(PaddedSamples, ATableOfPositionsIsNoTensorOfSamples) {
  const auto table = [](std::int64_t size) {
    Tensor tensor{.id = id_of(0, "output/table/0"),
                  .values = std::vector<double>(static_cast<std::size_t>(size * size), 1.0),
                  .shape = {size, size},
                  .samples = SampleDim{0, 6, 1}};
    tensor.undeclared = true;
    return tensor;
  };
  of_reference_.add(0, table(6));
  const Trace left = reference();
  TraceBuilder builder = candidate(2);
  add(builder, {.rank = 0, .samples = {1, 2}, .first = 0, .count = 6, .width = 6});
  add(builder, {.rank = 1, .samples = {0, 3, 4, 5}, .first = 2, .count = 6, .width = 4});
  Tensor whole = table(6);  // of other positions than rank 1's, and whole on both
  whole.samples.reset();
  builder.add(0, whole);
  Tensor mistaken = table(4);
  mistaken.placement.dims = {index_map(std::vector<std::int64_t>{2, 3, 4, 5}, 6),
                             {4, 4, {{0, 0, 4}}}};
  builder.add(1, mistaken);
  Trace right = builder.write();
  const SampleAlignment alignment = align_samples(left, right);
  EXPECT_THAT(alignment.findings, IsEmpty());
  EXPECT_TRUE(alignment.lacks(parse_tensor_id(id_of(0, "output/table/0"))));
  EXPECT_THAT(merged(right, id_of(0, "output/table/0")), IsEmpty());
  expect_placed(left, right, 1);
}

}  // namespace
}  // namespace ttrace
