// Whole steps: against the same step from torch's optimizer, and against themselves.
#include "reference/trainer.h"

#include "reference/gpt.h"
#include "reference/loss.h"
#include "small_run.h"
#include "support/temporary_directory.h"
#include "tensor_matchers.h"

#include <gtest/gtest.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adamw.h>

#include <cmath>
#include <fstream>

namespace ttrace::testing {
namespace {

using reference::Config;
using reference::Gpt;
using reference::Precision;
using reference::Samples;
using reference::StepResult;
using reference::Trainer;

class TrainerTest : public ::testing::Test {
 protected:
  TrainerTest() : config_(small_config()) {
    config_.data.file = folder_ / "text";
    write_text(config_.data.file);
  }
  TemporaryDirectory folder_;
  Config config_;
};

// The model of the first step of `config`, its gradients in place.
std::shared_ptr<Gpt> gpt_after_backward(const Config& config) {
  const bool is_mean = config.loss == reference::Loss::kMean;
  auto gpt = std::make_shared<Gpt>(config.model, config.precision);
  std::vector<NamedTensor> parameters;
  for (const auto& item : gpt->named_parameters()) {
    parameters.push_back({item.key(), item.value()});
  }
  fill_parameters(parameters, Layout{}, Annotations{}, config.data.seed);
  const reference::ByteCorpus corpus(config.data, config.model);
  std::vector<at::Tensor> losses;
  for (std::int64_t m = 0; m < config.data.micro_batches; ++m) {
    const Samples samples = corpus.samples(0, m);
    const at::Tensor logits = gpt->forward(samples.tokens, {samples.positions, samples.documents});
    const at::Tensor counted =
        reference::cross_entropy(logits, samples.labels).masked_select(samples.counts.t());
    losses.push_back(is_mean ? counted.mean().view({1}) : counted);
  }
  at::cat(losses).mean().backward();
  return gpt;
}

void expect_torchs_step(const Config& config) {
  Trainer trainer(config, TTRACE_REFERENCE_ANNOTATIONS);
  const StepResult result = trainer.step(0);

  const auto gpt = gpt_after_backward(config);
  std::vector<at::Tensor> matrices, vectors;
  for (const at::Tensor& parameter : gpt->parameters()) {
    (parameter.dim() >= 2 ? matrices : vectors).push_back(parameter);
  }
  const auto options = [&](double decay) {
    auto value = std::make_unique<torch::optim::AdamWOptions>(config.optimizer.learning_rate);
    value->betas({config.optimizer.beta1, config.optimizer.beta2});
    value->eps(config.optimizer.epsilon).weight_decay(decay);
    return value;
  };
  torch::optim::AdamW optimizer(std::vector<torch::optim::OptimizerParamGroup>{
      {matrices, options(config.optimizer.weight_decay)}, {vectors, options(0.0)}});
  const double norm = torch::nn::utils::clip_grad_norm_(gpt->parameters(), 0.25);
  optimizer.step();

  EXPECT_GT(norm, 0.25);
  EXPECT_NEAR(result.grad_norm, norm, 1e-12);
  const auto expected = gpt->named_parameters();
  for (const OptimizerEntry& entry : trainer.optimizer().entries()) {
    EXPECT_LT(max_difference(entry.param, expected[entry.path]), 1e-7) << entry.path;
  }
}

// The mean over all tokens, then with masked prompts and both ways to average.
TEST_F(TrainerTest, StepEqualsTorchsOptimizerOnTheMean) {
  config_.optimizer.clip = 0.25;  // below the norm
  expect_torchs_step(config_);
  config_.data.masked = reference::Masked::kPrompt;
  expect_torchs_step(config_);
  config_.loss = reference::Loss::kPerToken;
  expect_torchs_step(config_);
  config_.data.documents = reference::Documents::kPacked;
  expect_torchs_step(config_);
}

TEST_F(TrainerTest, MeansDifferWhereMicroBatchesHaveUnequalNumbersOfTokens) {
  const auto loss = [&](reference::Loss kind) {
    config_.loss = kind;
    return Trainer(config_, TTRACE_REFERENCE_ANNOTATIONS).step(0).loss;
  };
  using reference::Loss;
  EXPECT_NEAR(loss(Loss::kMean), loss(Loss::kPerToken), 1e-14);
  config_.data.masked = reference::Masked::kPrompt;
  EXPECT_GT(std::abs(loss(Loss::kMean) - loss(Loss::kPerToken)), 1e-4);
}

TEST_F(TrainerTest, RepeatsItselfBitByBit) {
  for (const Precision precision : {Precision::kF64, Precision::kF32, Precision::kBf16}) {
    config_.precision = precision;
    Trainer first(config_, TTRACE_REFERENCE_ANNOTATIONS);
    Trainer second(config_, TTRACE_REFERENCE_ANNOTATIONS);
    for (std::int64_t iteration = 0; iteration < 2; ++iteration) {
      EXPECT_EQ(first.step(iteration).digest, second.step(iteration).digest)
          << to_string(precision);
    }
  }
}

TEST_F(TrainerTest, DigestDependsOnSeedAndStep) {
  Trainer first(config_, TTRACE_REFERENCE_ANNOTATIONS);
  const std::string digest = first.step(0).digest;
  EXPECT_NE(Trainer(config_, TTRACE_REFERENCE_ANNOTATIONS).step(1).digest, digest);
  config_.data.seed = 2;
  EXPECT_NE(Trainer(config_, TTRACE_REFERENCE_ANNOTATIONS).step(0).digest, digest);
}

TEST_F(TrainerTest, LearnsATextOfFiveLetters) {
  std::ofstream text(config_.data.file);
  for (int i = 0; i < 100; ++i) {
    text << "abcde";
  }
  text.close();
  for (const Precision precision : {Precision::kF64, Precision::kF32, Precision::kBf16}) {
    config_.precision = precision;
    Trainer trainer(config_, TTRACE_REFERENCE_ANNOTATIONS);
    const double first = trainer.step(0).loss;
    double last = first;
    for (std::int64_t iteration = 1; iteration < 40; ++iteration) {
      last = trainer.step(iteration).loss;
    }
    EXPECT_NEAR(first, std::log(257.0), 0.2) << to_string(precision);
    EXPECT_LT(last, 0.5 * first) << to_string(precision);
  }
}

}  // namespace
}  // namespace ttrace::testing
