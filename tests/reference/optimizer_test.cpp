// AdamW and main gradients against torch::optim and torch::nn::utils.
#include "reference/adamw.h"
#include "reference/main_gradients.h"
#include "small_run.h"
#include "tensor_matchers.h"

#include <gtest/gtest.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adamw.h>

namespace ttrace::testing {
namespace {

using reference::AdamW;
using reference::MainGradients;
using reference::OptimizerConfig;

std::vector<NamedTensor> parameters(at::ScalarType type) {
  return {{"matrix", random({5, 3}, 1).to(type).requires_grad_()},
          {"vector", random({7}, 2).to(type).requires_grad_()}};
}

std::vector<NamedTensor> gradients_of_step(std::uint64_t step, at::ScalarType type) {
  return {{"matrix", random({5, 3}, 10 + step).to(type)},
          {"vector", random({7}, 20 + step).to(type)}};
}

// Two groups, because decay acts on matrices only.
torch::optim::AdamW torchs_adamw(const std::vector<NamedTensor>& parameters,
                                 const OptimizerConfig& config) {
  const auto group = [&](const at::Tensor& parameter, double decay) {
    auto options = std::make_unique<torch::optim::AdamWOptions>(config.learning_rate);
    options->betas({config.beta1, config.beta2}).eps(config.epsilon).weight_decay(decay);
    return torch::optim::OptimizerParamGroup({parameter}, std::move(options));
  };
  return torch::optim::AdamW(std::vector<torch::optim::OptimizerParamGroup>{
      group(parameters[0].tensor, config.weight_decay), group(parameters[1].tensor, 0.0)});
}

class AdamWIn : public ::testing::TestWithParam<std::pair<at::ScalarType, double>> {};

TEST_P(AdamWIn, EqualsTorchsOverSeveralSteps) {
  const auto [type, tolerance] = GetParam();
  OptimizerConfig config = small_config().optimizer;
  config.epsilon = 1e-3;  // large enough to see where it is added
  const auto ours = parameters(type);
  const auto theirs = parameters(type);
  AdamW optimizer(ours, config);
  auto expected = torchs_adamw(theirs, config);
  for (std::uint64_t step = 0; step < 5; ++step) {
    const auto gradients = gradients_of_step(step, type);
    optimizer.step(gradients);
    for (std::size_t i = 0; i < theirs.size(); ++i) {
      theirs[i].tensor.mutable_grad() = gradients[i].tensor.clone();
    }
    expected.step();
    for (std::size_t i = 0; i < ours.size(); ++i) {
      EXPECT_LT(max_difference(ours[i].tensor, theirs[i].tensor), tolerance)
          << ours[i].path << " after step " << step;
    }
  }
  EXPECT_FALSE(optimizer.entries()[0].master.defined());
}

INSTANTIATE_TEST_SUITE_P(
    Types, AdamWIn, ::testing::Values(std::pair{at::kDouble, 1e-14}, std::pair{at::kFloat, 1e-6}));

TEST(AdamW, KeepsF32MastersOfBf16ParametersAndRoundsThem) {
  const OptimizerConfig config = small_config().optimizer;
  const auto bf16 = parameters(at::kBFloat16);
  std::vector<NamedTensor> f32;
  for (const NamedTensor& parameter : bf16) {
    f32.push_back({parameter.path, parameter.tensor.detach().to(at::kFloat).requires_grad_()});
  }
  AdamW ours(bf16, config);
  AdamW same_in_f32(f32, config);
  for (std::uint64_t step = 0; step < 3; ++step) {
    ours.step(gradients_of_step(step, at::kFloat));
    same_in_f32.step(gradients_of_step(step, at::kFloat));
  }
  for (std::size_t i = 0; i < bf16.size(); ++i) {
    EXPECT_TRUE(ours.entries()[i].master.equal(f32[i].tensor)) << bf16[i].path;
    EXPECT_TRUE(bf16[i].tensor.equal(f32[i].tensor.to(at::kBFloat16))) << bf16[i].path;
  }
}

// 1 + 2^-9 is no BF16 number: summed in BF16 the second addend would be lost.
TEST(MainGradients, AddMicroBatchesInF32) {
  const at::Tensor parameter = at::zeros({2}, at::kBFloat16).requires_grad_();
  MainGradients gradients({{"p", parameter}});
  for (const double value : {1.0, 0.001953125}) {
    parameter.mutable_grad() = at::full({2}, value, at::kBFloat16);
    gradients.add_micro_batch();
    EXPECT_FALSE(parameter.grad().defined());
  }
  EXPECT_TRUE(gradients.tensors()[0].tensor.equal(at::full({2}, 1.001953125, at::kFloat)));
  gradients.zero();
  EXPECT_EQ(gradients.norm(), 0.0);
}

class Clip : public ::testing::TestWithParam<double> {};

TEST_P(Clip, EqualsTorchs) {
  const auto ours = parameters(at::kDouble);
  const auto theirs = parameters(at::kDouble);
  const auto values = gradients_of_step(0, at::kDouble);
  std::vector<at::Tensor> clipped;
  for (std::size_t i = 0; i < values.size(); ++i) {
    ours[i].tensor.mutable_grad() = values[i].tensor.clone();
    theirs[i].tensor.mutable_grad() = values[i].tensor.clone();
    clipped.push_back(theirs[i].tensor);
  }
  MainGradients gradients(ours);
  gradients.add_micro_batch();
  const double norm = gradients.norm();
  gradients.clip(norm, GetParam());
  EXPECT_NEAR(torch::nn::utils::clip_grad_norm_(clipped, GetParam()), norm, 1e-14);
  for (std::size_t i = 0; i < values.size(); ++i) {
    EXPECT_LT(max_difference(gradients.tensors()[i].tensor, theirs[i].tensor.grad()), 1e-15);
  }
}

INSTANTIATE_TEST_SUITE_P(LimitBelowAndAboveTheNorm, Clip, ::testing::Values(0.5, 1000.0));

}  // namespace
}  // namespace ttrace::testing
