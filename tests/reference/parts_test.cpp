// Attention, rotary positions, activations, norm and loss, each against another way to compute it.
#include "reference/attention.h"
#include "reference/loss.h"
#include "reference/mlp.h"
#include "small_run.h"
#include "tensor_matchers.h"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/functional/activation.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/normalization.h>

#include <cmath>
#include <complex>

namespace ttrace::testing {
namespace {

namespace F = torch::nn::functional;
using reference::ModelConfig;
using reference::QueryKeyValue;
using reference::RotaryTable;

constexpr std::int64_t kSequence = 6, kBatch = 3, kHeads = 4, kHeadSize = 8;

// [S, B, N, D] -> [B, N, S, D], group g repeated for its heads by an explicit table.
at::Tensor batch_first(const at::Tensor& x) {
  std::vector<std::int64_t> group_of_head;
  for (std::int64_t n = 0; n < kHeads; ++n) {
    group_of_head.push_back(n * x.size(2) / kHeads);
  }
  return x.index_select(2, at::tensor(group_of_head)).permute({1, 2, 0, 3});
}

class Attention : public ::testing::TestWithParam<std::int64_t> {};

TEST_P(Attention, EqualsScaledDotProductAttentionWithItsGradients) {
  const std::int64_t groups = GetParam();
  const auto input = [](std::int64_t heads, std::uint64_t seed) {
    return random({kSequence, kBatch, heads, kHeadSize}, seed).requires_grad_();
  };
  const QueryKeyValue qkv{input(kHeads, 1), input(groups, 2), input(groups, 3)};
  const at::Tensor ours =
      reference::weighted_sums(reference::attention_weights(qkv, {}), qkv.value);
  const at::Tensor theirs = at::scaled_dot_product_attention(batch_first(qkv.query),
                                                             batch_first(qkv.key),
                                                             batch_first(qkv.value),
                                                             {},
                                                             0.0,
                                                             /*is_causal=*/true)
                                .permute({2, 0, 1, 3})
                                .reshape({kSequence, kBatch, kHeads * kHeadSize});
  EXPECT_LT(max_difference(ours, theirs), 1e-14);

  const at::Tensor incoming = random(ours.sizes(), 4);
  const std::vector<at::Tensor> inputs{qkv.query, qkv.key, qkv.value};
  const auto our_gradients = torch::autograd::grad({ours}, inputs, {incoming});
  const auto their_gradients = torch::autograd::grad({theirs}, inputs, {incoming});
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    EXPECT_LT(max_difference(our_gradients[i], their_gradients[i]), 1e-13) << "input " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Groups, Attention, ::testing::Values(1, 2, 4));

TEST(SplitQkv, TakesRowsInMegatronsOrder) {
  ModelConfig model = small_config().model;  // 4 heads of 4 in 2 groups: A = 32
  const at::Tensor features =
      at::arange(32, at::kDouble).view({1, 1, 32}).expand({2, 3, 32}).contiguous();
  const QueryKeyValue qkv = reference::split_qkv(features, model);
  const auto first_feature = [](const at::Tensor& x, std::int64_t head) {
    return x[1][2][head][0].item<double>();
  };
  // Group 0: queries at 0 and 4, key at 8, value at 12; group 1 the same from 16.
  EXPECT_EQ(first_feature(qkv.query, 0), 0);
  EXPECT_EQ(first_feature(qkv.query, 1), 4);
  EXPECT_EQ(first_feature(qkv.key, 0), 8);
  EXPECT_EQ(first_feature(qkv.value, 0), 12);
  EXPECT_EQ(first_feature(qkv.query, 2), 16);
  EXPECT_EQ(first_feature(qkv.query, 3), 20);
  EXPECT_EQ(first_feature(qkv.key, 1), 24);
  EXPECT_EQ(first_feature(qkv.value, 1), 28);
}

RotaryTable small_table() {
  return reference::rotary_table(kSequence, kHeadSize, 100, at::kDouble);
}

TEST(Rotary, MultipliesEachPairAsAComplexNumber) {
  const at::Tensor x = random({kSequence, 1, 1, kHeadSize}, 1);
  const at::Tensor turned = reference::rotate(x, small_table());
  for (std::int64_t s = 0; s < kSequence; ++s) {
    for (std::int64_t i = 0; i < kHeadSize / 2; ++i) {
      const auto pair = [&](const at::Tensor& t) {
        return std::complex<double>(t[s][0][0][i].item<double>(),
                                    t[s][0][0][i + kHeadSize / 2].item<double>());
      };
      const double angle =
          static_cast<double>(s) * std::pow(100.0, -2.0 * static_cast<double>(i) / kHeadSize);
      EXPECT_LT(std::abs(pair(turned) - pair(x) * std::polar(1.0, angle)), 1e-14);
    }
  }
}

TEST(Rotary, KeepsLengths) {
  const at::Tensor x = random({kSequence, kBatch, kHeads, kHeadSize}, 1);
  EXPECT_LT(max_difference(reference::rotate(x, small_table()).norm(2, -1), x.norm(2, -1)), 1e-14);
}

TEST(Rotary, MakesScoresDependOnDistanceOnly) {
  const auto everywhere = [](std::uint64_t seed) {  // one vector at all positions: [S, D]
    const at::Tensor x = random({1, 1, 1, kHeadSize}, seed).expand({kSequence, 1, 1, kHeadSize});
    return reference::rotate(x, small_table()).view({kSequence, kHeadSize});
  };
  const at::Tensor scores = everywhere(1).matmul(everywhere(2).t());  // [S query, S key]
  for (std::int64_t s = 1; s < kSequence; ++s) {
    EXPECT_LT(max_difference(scores[s].narrow(0, 1, kSequence - 1),
                             scores[s - 1].narrow(0, 0, kSequence - 1)),
              1e-14);
  }
}

TEST(Rotary, ComputesBf16InF32) {
  const at::Tensor x = random({kSequence, kBatch, kHeads, kHeadSize}, 1).to(at::kBFloat16);
  const RotaryTable table = reference::rotary_table(kSequence, kHeadSize, 100, at::kFloat);
  const at::Tensor turned = reference::rotate(x, table);
  ASSERT_EQ(turned.scalar_type(), at::kBFloat16);
  EXPECT_TRUE(turned.equal(reference::rotate(x.to(at::kFloat), table).to(at::kBFloat16)));
}

TEST(Activation, GeluIsTheExactForm) {
  const at::Tensor x = random({5, 2, 8}, 1);
  const at::Tensor normal = 0.5 * (1.0 + (x / std::sqrt(2.0)).erf());
  EXPECT_LT(max_difference(reference::activate(x, reference::Activation::kGelu), x * normal),
            1e-15);
}

TEST(Activation, SwigluGatesTheSecondHalfByTheFirst) {
  const at::Tensor x = random({5, 2, 8}, 1);
  const at::Tensor gate = x.slice(2, 0, 4);
  // glu(a, b) is a sigmoid(b): with a = gate up it becomes silu(gate) up.
  const at::Tensor theirs = F::glu(at::cat({gate * x.slice(2, 4, 8), gate}, 2), 2);
  EXPECT_LT(max_difference(reference::activate(x, reference::Activation::kSwiglu), theirs), 1e-15);
}

TEST(LayerNorm, EqualsItsFormulaWithItsGradients) {
  reference::LayerNorm norm(16, 1e-3, at::kDouble);
  norm.weight.set_data(random({16}, 1));
  norm.bias.set_data(random({16}, 2));
  const at::Tensor x = random({5, 2, 16}, 3).requires_grad_();
  const at::Tensor ours = norm.forward(x);
  const at::Tensor centred = x - x.mean(-1, true);
  const at::Tensor variance = centred.square().mean(-1, true);
  const at::Tensor theirs = centred / (variance + 1e-3).sqrt() * norm.weight + norm.bias;
  EXPECT_LT(max_difference(ours, theirs), 1e-14);

  const at::Tensor incoming = random(ours.sizes(), 4);
  const std::vector<at::Tensor> inputs{x, norm.weight, norm.bias};
  const auto our_gradients = torch::autograd::grad({ours}, inputs, {incoming});
  const auto their_gradients = torch::autograd::grad({theirs}, inputs, {incoming});
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    EXPECT_LT(max_difference(our_gradients[i], their_gradients[i]), 1e-13) << "input " << i;
  }
}

TEST(CrossEntropy, EqualsTorchsPerToken) {
  const at::Tensor logits = random({5, 3, 11}, 1);  // [S, B, V]
  const at::Tensor labels = at::arange(15, at::kLong).mul(7).remainder(11).view({3, 5});  // [B, S]
  const at::Tensor theirs =
      F::cross_entropy(logits.transpose(0, 1).reshape({15, 11}),
                       labels.reshape({15}),
                       F::CrossEntropyFuncOptions().reduction(torch::kNone));  // sample by sample
  EXPECT_LT(max_difference(reference::cross_entropy(logits, labels), theirs.view({3, 5}).t()),
            1e-14);
}

// Torch gives the label a share of what is spread as well.
TEST(CrossEntropy, SmoothedLabelsEqualTorchsWithTheLabelsShare) {
  const at::Tensor logits = random({5, 3, 11}, 1);  // [S, B, V]
  const at::Tensor labels = at::arange(15, at::kLong).mul(7).remainder(11).view({3, 5});  // [B, S]
  const at::Tensor theirs = F::cross_entropy(
      logits.transpose(0, 1).reshape({15, 11}),
      labels.reshape({15}),
      F::CrossEntropyFuncOptions().reduction(torch::kNone).label_smoothing(0.2 * 11 / 10));
  EXPECT_LT(max_difference(reference::cross_entropy(logits, labels, 0.2), theirs.view({3, 5}).t()),
            1e-14);
}

TEST(Dropout, MaskFollowsFromPathPlaceAndSample) {
  const reference::Dropout dropout(0.25, "layer.dropout");
  const auto mask = [&](const reference::Draw& draw) { return dropout.kept({30, 3, 40}, 1, draw); };
  const at::Tensor order = at::arange(3);
  const at::Tensor first = mask({1, 2, 3, order});
  EXPECT_TRUE(first.equal(mask({1, 2, 3, order})));
  for (const reference::Draw& other :
       {reference::Draw{2, 2, 3, order}, {1, 3, 3, order}, {1, 2, 4, order}}) {
    EXPECT_FALSE(first.equal(mask(other)));
  }
  EXPECT_FALSE(
      first.equal(reference::Dropout(0.25, "other").kept({30, 3, 40}, 1, {1, 2, 3, order})));
  const at::Tensor exchanged = at::tensor({2, 0, 1}, at::kLong);
  EXPECT_TRUE(mask({1, 2, 3, exchanged}).equal(first.index_select(1, exchanged)));
  // 3600 draws: the standard deviation of the share is 0.007.
  EXPECT_NEAR(first.to(at::kDouble).mean().item<double>(), 0.75, 0.03);
}

TEST(Dropout, WhatStaysGrowsByTheShareOfTheDropped) {
  const at::Tensor y = reference::Dropout(0.25, "p").apply(
      at::tensor({3.0, 5.0, -6.0}, at::kDouble), at::tensor({1, 0, 1}, at::kLong).to(at::kBool));
  EXPECT_LT(max_difference(y, at::tensor({4.0, 0.0, -8.0}, at::kDouble)), 1e-15);
}

TEST(CrossEntropy, OfBf16LogitsIsComputedInF32) {
  const at::Tensor logits = random({5, 3, 11}, 1).to(at::kBFloat16);
  const at::Tensor labels = at::zeros({3, 5}, at::kLong);
  const at::Tensor loss = reference::cross_entropy(logits, labels);
  EXPECT_EQ(loss.scalar_type(), at::kFloat);
  EXPECT_LT(max_difference(loss, reference::cross_entropy(logits.to(at::kDouble), labels)), 1e-6);
}

TEST(ShareOfStep, PartsAddUpToTheMeanOverAllTokens) {
  const at::Tensor first = random({5, 3}, 1);
  const at::Tensor second = random({5, 3}, 2);
  const at::Tensor all = at::ones({3, 5}, at::kBool);
  const auto share = [&](const at::Tensor& per_token) {
    return reference::share_of_step(per_token, all, reference::Loss::kMean, 2);
  };
  EXPECT_LT(max_difference(share(first) + share(second), at::cat({first, second}).mean()), 1e-15);
}

// 2 tokens count in the first micro-batch, 4 in the second.
TEST(ShareOfStep, TokensThatDoNotCountGiveNeitherLossNorGradient) {
  const at::Tensor first = at::arange(6, at::kDouble).view({3, 2}).requires_grad_();  // [S, B]
  const at::Tensor second = at::arange(6, 12, at::kDouble).view({3, 2}).requires_grad_();
  const at::Tensor counts =
      at::tensor({0, 0, 1, 0, 0, 1}, at::kLong).to(at::kBool).view({2, 3});  // [B, S]
  const auto share =
      [&](const at::Tensor& per_token, const at::Tensor& which, reference::Loss loss) {
        return reference::share_of_step(per_token, which, loss, 2);
      };
  using reference::Loss;
  // Losses 4 and 5 count; of the second micro-batch 6, 7, 8, 9.
  EXPECT_EQ(share(first, counts, Loss::kMean).item<double>(), (4.0 + 5.0) / 2 / 2);
  EXPECT_EQ(share(second, counts.logical_not(), Loss::kMean).item<double>(), 30.0 / 4 / 2);
  EXPECT_EQ(share(first, counts, Loss::kPerToken).item<double>(), 9.0);
  const auto gradient = torch::autograd::grad({share(first, counts, Loss::kMean)}, {first}).front();
  EXPECT_TRUE(gradient.equal(counts.t().to(at::kDouble) * 0.25));
}

}  // namespace
}  // namespace ttrace::testing
