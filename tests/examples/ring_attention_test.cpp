// Ring attention between real ranks: values and gradients against attention over the whole sequence
// on one rank.
#include "ring_attention.h"

#include "attention.h"
#include "context_parallel.h"
#include "ranks.h"

#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace {

using megatron_mini::CoreAttention;
using megatron_mini::Ring;
using megatron_mini::ring_attention;
using megatron_mini::testing::world;

constexpr std::int64_t kSequence = 24;  // three tokens a chunk on four ranks
constexpr std::int64_t kSamples = 2;
constexpr std::int64_t kHeads = 4;
constexpr std::int64_t kHeadSize = 6;

// Numbers of size 1 that differ everywhere; [s, b, heads, d].
at::Tensor waves(std::int64_t heads, double frequency) {
  return (at::arange(kSequence * kSamples * heads * kHeadSize).to(at::kDouble) * frequency)
      .sin()
      .view({kSequence, kSamples, heads, kHeadSize});
}

at::Tensor own_chunks(const at::Tensor& whole) {
  return whole.index_select(0, megatron_mini::zigzag_rows(kSequence, world().size, world().rank));
}

// Query, key, value, their gradients, and the context.
struct Pass {
  std::vector<at::Tensor> inputs;
  at::Tensor context;
};

template <class Attention>
Pass pass(std::vector<at::Tensor> inputs, const at::Tensor& incoming, const Attention& attention) {
  for (auto& input : inputs) {
    input = input.clone().requires_grad_(true);
  }
  Pass result{.inputs = inputs, .context = attention(inputs[0], inputs[1], inputs[2])};
  result.context.backward(incoming);
  return result;
}

double largest_difference(const at::Tensor& a, const at::Tensor& b) {
  EXPECT_EQ(a.sizes(), b.sizes());
  return (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>();
}

Ring ring(const at::Tensor& documents = {}) {
  return {.group = world(), .scale = 1.0 / std::sqrt(double{kHeadSize}), .documents = documents};
}

// Compares a pass over this rank's rows with one over all.
void expect_like_one_rank(const std::vector<at::Tensor>& inputs,
                          const at::Tensor& documents,
                          double tolerance) {
  const at::Tensor incoming =
      waves(kHeads, 2.3).to(inputs[0].scalar_type()).flatten(2);  // [s, b, n * d]
  megatron_mini::TokenPlaces all_places;
  all_places.documents = documents;
  const Pass whole =
      pass(inputs, incoming, [&](const auto& query, const auto& key, const auto& value) {
        return CoreAttention().forward(query, key, value, all_places);
      });
  std::vector<at::Tensor> parts;
  for (const auto& input : inputs) {
    parts.push_back(own_chunks(input));
  }
  const Pass mine =
      pass(parts, own_chunks(incoming), [&](const auto& query, const auto& key, const auto& value) {
        return ring_attention(query, key, value, ring(documents));
      });
  EXPECT_EQ(mine.context.scalar_type(), inputs[0].scalar_type());
  EXPECT_LT(largest_difference(mine.context, own_chunks(whole.context)), tolerance);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    EXPECT_EQ(mine.inputs[i].grad().scalar_type(), inputs[i].scalar_type());
    EXPECT_LT(largest_difference(mine.inputs[i].grad(), own_chunks(whole.inputs[i].grad())),
              tolerance)
        << "input " << i;
  }
}

// [s, b]: number of the document of each token; the two samples are cut elsewhere.
at::Tensor two_cuts() {
  const at::Tensor row = at::arange(kSequence);
  return at::stack({row.ge(5).to(at::kLong) + row.ge(19).to(at::kLong),
                    row.ge(1).to(at::kLong) + row.ge(11).to(at::kLong)},
                   1);
}

TEST(RingAttention, EqualsAttentionOnOneRankWithItsGradients) {
  for (const std::int64_t groups : {1, 2, 4}) {
    SCOPED_TRACE(groups);
    const std::vector<at::Tensor> inputs = {
        waves(kHeads, 1.1), waves(groups, 1.7), waves(groups, 0.9)};
    expect_like_one_rank(inputs, {}, 1e-14);
    expect_like_one_rank(inputs, two_cuts(), 1e-14);
  }
}

TEST(RingAttention, LiesWithinRoundingInLowerPrecision) {
  for (const auto& [type, tolerance] : {std::pair{at::kFloat, 1e-6}, {at::kBFloat16, 0.03}}) {
    expect_like_one_rank(
        {waves(kHeads, 1.1).to(type), waves(2, 1.7).to(type), waves(2, 0.9).to(type)},
        two_cuts(),
        tolerance);
  }
}

// Scores of some hundreds: e^score overflows even f64 unless each block's own largest is taken out.
TEST(RingAttention, LargeScoreGapsStayExact) {
  expect_like_one_rank(
      {waves(kHeads, 1.1) * 100.0, waves(2, 1.7) * 100.0, waves(2, 0.9)}, {}, 1e-10);
}

TEST(RingAttention, DocumentOfOneTokenReturnsItsValue) {
  const at::Tensor alone = at::arange(kSequence).unsqueeze(1).expand({-1, kSamples});
  const at::Tensor value = own_chunks(waves(kHeads, 0.9));
  const at::Tensor context = ring_attention(
      own_chunks(waves(kHeads, 1.1)), own_chunks(waves(kHeads, 1.7)), value, ring(alone));
  EXPECT_LT(largest_difference(context, value.flatten(2)), 1e-15);
}

// The places of a rank's rows, or of all.
megatron_mini::TokenPlaces places(const at::Tensor& rows) {
  megatron_mini::TokenPlaces result;
  result.rows = rows;
  result.samples = at::arange(kSamples);
  result.draw = 11;
  return result;
}

TEST(RingAttention, DropsTheWeightsThatOneRankDrops) {
  const std::vector<at::Tensor> inputs = {waves(kHeads, 1.1), waves(2, 1.7), waves(2, 0.9)};
  const at::Tensor incoming = waves(kHeads, 2.3).flatten(2);
  const auto attend = [](const megatron_mini::Group& cp, const at::Tensor& rows) {
    return [cp, at_places = places(rows)](
               const at::Tensor& query, const at::Tensor& key, const at::Tensor& value) {
      CoreAttention attention(
          cp, {.probability = 0.3, .path = "dropout", .heads = kHeads, .sequence = kSequence});
      return attention.forward(query, key, value, at_places);
    };
  };
  const at::Tensor all = at::arange(kSequence);
  const Pass whole = pass(inputs, incoming, attend({}, all));
  const Pass plain =
      pass(inputs, incoming, [](const auto& query, const auto& key, const auto& value) {
        return CoreAttention().forward(query, key, value);
      });
  EXPECT_GT(largest_difference(whole.context, plain.context), 0.01);
  std::vector<at::Tensor> parts;
  for (const auto& input : inputs) {
    parts.push_back(own_chunks(input));
  }
  const Pass mine = pass(parts, own_chunks(incoming), attend(world(), own_chunks(all)));
  EXPECT_LT(largest_difference(mine.context, own_chunks(whole.context)), 1e-14);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    EXPECT_LT(largest_difference(mine.inputs[i].grad(), own_chunks(whole.inputs[i].grad())), 1e-14)
        << "input " << i;
  }
}

std::map<std::string, int>& calls() {
  static std::map<std::string, int> counts;
  return counts;
}

std::unique_ptr<at::ObserverContext> count_call(const at::RecordFunction& record) {
  ++calls()[record.name()];
  return nullptr;
}

// Keys and values make size - 1 steps in each direction of the pass, their gradients `size`.
TEST(RingAttention, PassesMessagesToNeighboursAndGathersNothing) {
  const auto handle = at::addThreadLocalCallback(at::RecordFunctionCallback(&count_call));
  const auto attend = [](const auto& query, const auto& key, const auto& value) {
    return ring_attention(query, key, value, ring());
  };
  pass({own_chunks(waves(kHeads, 1.1)), own_chunks(waves(2, 1.7)), own_chunks(waves(2, 0.9))},
       own_chunks(waves(kHeads, 2.3)).flatten(2),
       attend);
  at::removeCallback(handle);
  EXPECT_EQ(calls()["c10d::send"], 3 * world().size - 2);
  EXPECT_EQ(calls()["c10d::recv_"], 3 * world().size - 2);
  EXPECT_EQ(calls()["c10d::_allgather_base_"], 0);
  EXPECT_EQ(calls()["c10d::allreduce_"], 0);
}

TEST(ZigzagRows, OfAllRanksAreTheSequenceOnce) {
  std::vector<at::Tensor> rows;
  for (int rank = 0; rank < world().size; ++rank) {
    rows.push_back(megatron_mini::zigzag_rows(kSequence, world().size, rank));
    EXPECT_EQ(rows.back().numel(), kSequence / world().size);
    EXPECT_EQ(rows.back()[0].item<std::int64_t>(), rank * kSequence / (2 * world().size));
    EXPECT_EQ(rows.back()[-1].item<std::int64_t>(),
              kSequence - 1 - rank * kSequence / (2 * world().size));
  }
  EXPECT_TRUE(std::get<0>(at::cat(rows).sort()).equal(at::arange(kSequence)));
  EXPECT_TRUE(megatron_mini::zigzag_rows(5, 1, 0).equal(at::arange(5)));
}

}  // namespace
