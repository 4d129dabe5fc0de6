// The optimizer divided over real ranks: same parameters as the undivided one.
#include "faults/planted.h"
#include "flat_buckets.h"
#include "main_gradients.h"
#include "mixed_precision_optimizer.h"
#include "parameter_gather.h"
#include "ranks.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

namespace {

using megatron_mini::MainGradients;
using megatron_mini::MixedPrecisionOptimizer;
using megatron_mini::ModelParameter;
using megatron_mini::Parallel;
using megatron_mini::ParameterGather;
using megatron_mini::faults::parts_with_bug;
using megatron_mini::testing::world;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

const megatron_mini::OptimizerConfig kOptimizer{.learning_rate = 1e-2,
                                                .beta1 = 0.9,
                                                .beta2 = 0.95,
                                                .epsilon = 1e-8,
                                                .weight_decay = 0.1,
                                                .clip = 1.0};

Parallel all_data_parallel(bool zero1) {
  return {.world = world(), .tp = {}, .dp = world(), .dp_cp = world(), .zero1 = zero1};
}

// Three buckets, equal on all ranks; a cut goes through two of them.
std::vector<ModelParameter> start(at::ScalarType type) {
  at::manual_seed(1);
  std::vector<ModelParameter> result;
  const std::vector<std::pair<std::string, std::vector<std::int64_t>>> shapes = {
      {"embedding.weight", {257, 33}},
      {"decoder.layers.0.weight", {190, 190}},
      {"decoder.layers.0.bias", {190}},
      {"decoder.layers.1.weight", {300, 300}},
      {"decoder.layers.1.bias", {7}}};
  for (const auto& [path, shape] : shapes) {
    result.push_back({.path = path, .tensor = at::randn(shape, at::kDouble).to(type)});
    result.back().tensor.requires_grad_(true);
  }
  return result;
}

// Each rank has other gradients, the same for both optimizers.
void train_step(std::int64_t iteration,
                const std::vector<ModelParameter>& parameters,
                MainGradients& gradients,
                MixedPrecisionOptimizer& optimizer) {
  at::manual_seed(static_cast<std::uint64_t>(100 * iteration + world().rank));
  gradients.zero(iteration);
  for (const auto& parameter : parameters) {
    parameter.tensor.mutable_grad() =
        at::randn(parameter.tensor.sizes(), at::kDouble).to(parameter.tensor.scalar_type());
  }
  gradients.accumulate(0);
  gradients.reduce(megatron_mini::Loss::kMean);
  gradients.clip(gradients.norm(), kOptimizer.clip);
  optimizer.step();
}

std::vector<ModelParameter> trained(at::ScalarType type, bool zero1) {
  auto parameters = start(type);
  MainGradients gradients(parameters, all_data_parallel(zero1));
  MixedPrecisionOptimizer optimizer(parameters, gradients.parts(), gradients.reduced(), kOptimizer);
  ParameterGather gather(parameters, gradients.buckets());
  for (std::int64_t iteration = 0; iteration < 3; ++iteration) {
    train_step(iteration, parameters, gradients, optimizer);
    if (zero1) {
      gather.start();
      EXPECT_EQ(gather.finish().size(), parameters.size());
    }
  }
  return parameters;
}

TEST(DistributedOptimizer, UpdatesParametersAsTheUndividedOne) {
  const auto expected = trained(at::kDouble, false);
  const auto divided = trained(at::kDouble, true);
  const auto untrained = start(at::kDouble);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const at::Tensor difference = (divided[i].tensor - expected[i].tensor).abs().max();
    EXPECT_LE(difference.item<double>(), 1e-12) << expected[i].path;
    EXPECT_FALSE(expected[i].tensor.equal(untrained[i].tensor)) << expected[i].path;
  }
}

TEST(DistributedOptimizer, RankHasStateOfItsPartsAlone) {
  auto parameters = start(at::kBFloat16);
  MainGradients gradients(parameters, all_data_parallel(true));
  MixedPrecisionOptimizer optimizer(parameters, gradients.parts(), gradients.reduced(), kOptimizer);
  train_step(0, parameters, gradients, optimizer);
  std::int64_t state = 0;
  for (const auto& entry : optimizer.entries(false)) {
    EXPECT_EQ(entry.master.numel(), entry.exp_avg.numel());
    EXPECT_EQ(entry.param.numel(), entry.exp_avg_sq.numel());
    EXPECT_TRUE(entry.flat_first.has_value());
    state += entry.master.numel();
  }
  std::int64_t elements = 0;
  for (const auto& parameter : parameters) {
    elements += parameter.tensor.numel();
  }
  EXPECT_LE(state, elements / world().size + 3 * 64 * world().size);
  const at::Tensor all =
      all_reduce(at::full({1}, state, at::kLong), world());  // each element on one rank
  EXPECT_EQ(all.item<std::int64_t>(), elements);
  std::vector<std::string> whole;
  for (const auto& entry : optimizer.entries(true)) {
    whole.push_back(entry.path);
    EXPECT_TRUE(entry.param.defined());
  }
  EXPECT_EQ(whole.size(), parameters.size());
}

// Every rank writes its number to its parts and gets those of the others.
std::vector<ModelParameter> marked(const std::vector<megatron_mini::FlatBucket>& buckets) {
  auto parameters = start(at::kFloat);
  for (const auto& part : owned_parts(parameters, buckets, true)) {
    part.of(parameters[part.parameter].tensor.detach()).fill_(1000.0 + world().rank);
  }
  return parameters;
}

bool is_there(const ModelParameter& parameter) {
  return parameter.tensor.ge(1000.0).all().item<bool>();
}

TEST(ParameterGather, ModuleWaitsForTheBucketsOfItsParametersAndForNoOther) {
  const auto buckets = flat_buckets(start(at::kFloat), world(), true);
  const auto parameters = marked(buckets);
  ParameterGather gather(parameters, buckets);
  gather.start();
  EXPECT_FALSE(is_there(parameters[1]));
  EXPECT_THAT(gather.await("decoder.layers.0"),
              ElementsAre("decoder.layers.0.weight", "decoder.layers.0.bias"));
  EXPECT_FALSE(is_there(parameters[0]));  // the embedding has a bucket of its own
  EXPECT_TRUE(is_there(parameters[1]));
  EXPECT_FALSE(is_there(parameters[3]));
  EXPECT_THAT(gather.await("decoder.layers.0"), IsEmpty());
  EXPECT_THAT(gather.await("embedding"), ElementsAre("embedding.weight"));
  EXPECT_TRUE(is_there(parameters[0]));
  EXPECT_THAT(gather.finish(), ElementsAre("decoder.layers.1.weight", "decoder.layers.1.bias"));
  EXPECT_TRUE(is_there(parameters[3]));
  EXPECT_TRUE(is_there(parameters[4]));
}

TEST(ParameterGather, DroppedResultLeavesOtherRanksPartsAsTheyWere) {
  const auto buckets = flat_buckets(start(at::kFloat), world(), true);
  const auto parameters = marked(buckets);
  const auto gather = parts_with_bug("gathered-parameters-dropped").gather(parameters, buckets);
  gather->start();
  EXPECT_EQ(gather->finish().size(), parameters.size());
  EXPECT_FALSE(is_there(parameters[1]));
}

TEST(ParameterGather, WrongBucketAwaitedLeavesLayer1Stale) {
  const auto buckets = flat_buckets(start(at::kFloat), world(), true);
  const auto parameters = marked(buckets);
  const auto gather = parts_with_bug("gather-of-wrong-bucket-awaited").gather(parameters, buckets);
  gather->start();
  EXPECT_EQ(gather->await("decoder.layers.1").size(), 2U);
  EXPECT_FALSE(is_there(parameters[3]));
  EXPECT_TRUE(is_there(parameters[1]));
  static_cast<void>(gather->finish());
  EXPECT_TRUE(is_there(parameters[3]));
}

TEST(GradientBuckets, EndThatIsNotReducedKeepsTheOwnersAddend) {
  std::vector<ModelParameter> parameters = {
      {.path = "p", .tensor = at::zeros({64 * world().size + 1}).requires_grad_(true)}};
  const auto gradients =
      parts_with_bug("bucket-end-not-reduced").gradients(parameters, all_data_parallel(true));
  (parameters[0].tensor * (1.0 + world().rank)).sum().backward();
  gradients->accumulate(0);
  gradients->reduce(megatron_mini::Loss::kPerToken);
  const int size = world().size;
  for (std::size_t i = 0; i < gradients->parts().size(); ++i) {
    const auto& part = gradients->parts()[i];
    const at::Tensor reduced = gradients->reduced()[i];
    const std::int64_t right = std::min(part.count, 64 * size - *part.first);
    EXPECT_TRUE(reduced.narrow(0, 0, right).eq(size * (size + 1) / 2).all().item<bool>());
    EXPECT_TRUE(
        reduced.narrow(0, right, part.count - right).eq(1 + world().rank).all().item<bool>());
  }
}

}  // namespace
