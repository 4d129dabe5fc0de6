// Mixture of experts: choice, losses and bias update by hand, the whole layer against a loop over
// tokens.
#include "reference/moe.h"

#include "small_run.h"
#include "tensor_matchers.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

namespace ttrace::testing {
namespace {

using reference::MixtureOfExperts;
using reference::ModelConfig;
using reference::Routing;

at::Tensor f64(std::initializer_list<double> values) {
  return at::tensor(values, at::kDouble);
}

TEST(BestExperts, AreTheLargestBestFirstAndOfEqualOnesTheLowerNumber) {
  const at::Tensor scores = f64({0.1, 0.4, 0.2, 0.3, 0.4, 0.1, 0.4, 0.1}).view({2, 4});
  const at::Tensor expected = at::tensor({1, 3, 0, 2}, at::kLong).view({2, 2});
  EXPECT_TRUE(reference::best_experts(scores, 2).equal(expected));
}

TEST(MarginOfChoice, IsTheLeadOverTheBestThatIsLeftOut) {
  const at::Tensor scores = f64({0.125, 0.5, 0.25, 0.125});
  EXPECT_DOUBLE_EQ(reference::margin_of_choice(scores, 1).item<double>(), 0.25);
  EXPECT_DOUBLE_EQ(reference::margin_of_choice(scores, 2).item<double>(), 0.125);
  EXPECT_DOUBLE_EQ(reference::margin_of_choice(scores, 4).item<double>(), 0.125);
}

// E = 2, K = 1, T = 2: 2 / (1 * 4) * (2 * (0.75 + 0.5) + 0 * (0.25 + 0.5)).
TEST(BalanceLoss, WeighsProbabilitiesByTheTokensThatWereSent) {
  const at::Tensor probabilities = f64({0.75, 0.25, 0.5, 0.5}).view({2, 2});
  const at::Tensor chosen = at::zeros({2, 1}, at::kLong);
  EXPECT_DOUBLE_EQ(reference::balance_loss(probabilities, chosen).item<double>(), 1.25);
}

TEST(BalanceLoss, IsOneWhereAllExpertsAreUsedAlike) {
  const at::Tensor probabilities = at::full({4, 4}, 0.25, at::kDouble);
  const at::Tensor chosen = at::tensor({0, 1, 2, 3, 0, 1, 2, 3}, at::kLong).view({4, 2});
  EXPECT_DOUBLE_EQ(reference::balance_loss(probabilities, chosen).item<double>(), 1.0);
}

TEST(ZLoss, IsTheMeanSquaredLogarithmOfTheSumOfExponentials) {
  const at::Tensor logits = f64({0.0, 0.0, 1.0, 1.0}).view({2, 2});
  const double first = std::log(2.0);
  const double second = 1.0 + std::log(2.0);
  EXPECT_NEAR(
      reference::z_loss(logits).item<double>(), (first * first + second * second) / 2.0, 1e-15);
}

TEST(UpdatedBias, MovesTowardsExpertsBelowTheMeanLoad) {
  const at::Tensor loads = at::tensor({5, 3, 4, 4}, at::kLong);
  const at::Tensor updated = reference::updated_bias(f64({1.0, 2.0, 3.0, 0.0}), loads, 0.5);
  EXPECT_TRUE(updated.equal(f64({0.5, 2.5, 3.0, 0.0}))) << updated;
}

ModelConfig small_model() {
  ModelConfig model = small_config().model;
  model.experts = 4;
  model.top_k = 2;
  model.shared_expert = 8;
  return model;
}

void randomise(const torch::nn::Module& module) {
  const at::NoGradGuard no_grad;
  std::uint64_t seed = 100;
  for (auto& parameter : module.parameters()) {
    parameter.copy_(random(parameter.sizes(), seed++) * 0.3);
  }
}

Routing routing_of(std::int64_t s, std::int64_t b) {
  return {.tokens = at::arange(s * b).view({s, b}), .counted = at::ones({s, b}, at::kBool)};
}

TEST(MixtureOfExperts, EqualsEveryTokenThroughItsTwoBestExpertsByItself) {
  const ModelConfig model = small_model();
  MixtureOfExperts moe(model, at::kDouble);
  randomise(moe);
  const at::Tensor x = random({3, 2, model.hidden}, 7);
  Routing routing = routing_of(3, 2);
  const at::Tensor y = moe.forward(x, routing);
  for (std::int64_t s = 0; s < 3; ++s) {
    for (std::int64_t b = 0; b < 2; ++b) {
      const at::Tensor token = x[s][b];
      const at::Tensor p = at::mv(moe.router->weight, token).softmax(0);
      const auto [best, numbers] = p.topk(2);
      at::Tensor expected = moe.shared_expert->forward(token.view({1, 1, -1})).view(-1);
      for (std::int64_t k = 0; k < 2; ++k) {
        const auto number = static_cast<std::size_t>(numbers[k].item<std::int64_t>());
        expected = expected + best[k] / best.sum() *
                                  moe.experts[number]->forward(token.view({1, 1, -1})).view(-1);
      }
      EXPECT_LT(max_difference(y[s][b], expected), 1e-13) << s << " " << b;
    }
  }
  ASSERT_EQ(routing.loads.size(), 1U);
  EXPECT_EQ(routing.loads[0].sum().item<std::int64_t>(), 3 * 2 * 2);
}

TEST(MixtureOfExperts, BiasMovesTheChoiceButNoWeight) {
  ModelConfig model = small_model();
  model.top_k = 1;
  model.shared_expert = 0;
  model.expert_bias = 0.1;
  MixtureOfExperts moe(model, at::kDouble);
  randomise(moe);
  moe.router->expert_bias.copy_(f64({0.0, 0.0, 2.0, 0.0}));  // more than any probability
  const at::Tensor x = random({3, 2, model.hidden}, 7);
  Routing routing = routing_of(3, 2);
  const auto choice = moe.router->forward(x, routing);
  EXPECT_TRUE(choice.experts.eq(2).all().item<bool>());
  const at::Tensor p = at::linear(x, moe.router->weight).softmax(-1).select(-1, 2);
  EXPECT_LT(max_difference(choice.weights.squeeze(-1), p), 1e-15);
  EXPECT_FALSE(moe.router->expert_bias.requires_grad());
}

TEST(MixtureOfExperts, RouterLossesLeaveOutTokensThatDoNotCount) {
  const ModelConfig model = small_model();
  MixtureOfExperts moe(model, at::kDouble);
  randomise(moe);
  const at::Tensor x = random({3, 2, model.hidden}, 7);
  Routing some = routing_of(3, 2);
  some.counted[0].fill_(false);
  static_cast<void>(moe.forward(x, some));
  Routing rest = routing_of(2, 2);
  static_cast<void>(moe.forward(x.narrow(0, 1, 2), rest));
  EXPECT_NEAR(some.balance_loss.item<double>(), rest.balance_loss.item<double>(), 1e-14);
  EXPECT_NEAR(some.z_loss.item<double>(), rest.z_loss.item<double>(), 1e-14);
}

TEST(MixtureOfExperts, ExpertWithoutTokensHasZeroGradients) {
  ModelConfig model = small_model();
  model.top_k = 1;
  model.expert_bias = 0.1;
  MixtureOfExperts moe(model, at::kDouble);
  randomise(moe);
  moe.router->expert_bias.copy_(f64({0.0, 0.0, 2.0, 0.0}));
  Routing routing = routing_of(3, 2);
  moe.forward(random({3, 2, model.hidden}, 7), routing).sum().backward();
  EXPECT_TRUE(moe.experts[0]->linear_fc1->weight.grad().eq(0.0).all().item<bool>());
  EXPECT_FALSE(moe.experts[2]->linear_fc1->weight.grad().eq(0.0).all().item<bool>());
}

}  // namespace
}  // namespace ttrace::testing
