// Planted bugs of the reduction of gradients, between real ranks.
#include "main_gradients.h"
#include "parts_of.h"
#include "ranks.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

namespace {

using megatron_mini::ModelParameter;
using megatron_mini::Parallel;
using megatron_mini::ParameterRole;
using megatron_mini::testing::parts_of;
using megatron_mini::testing::world;

// The reduced gradients of these parameters, of one element each, where rank r gives 1 + r.
std::vector<double> reduced_with(const std::string& bug,
                                 const Parallel& parallel,
                                 const std::vector<ModelParameter>& parameters) {
  const auto gradients = parts_of(bug).gradients(parameters, parallel);
  for (const auto& parameter : parameters) {
    parameter.tensor.mutable_grad() = at::full({1}, 1.0 + world().rank);
  }
  gradients->accumulate(0);
  gradients->reduce(megatron_mini::Loss::kMean);
  std::vector<double> result;
  for (const at::Tensor& gradient : gradients->reduced()) {
    result.push_back(gradient.item<double>());
  }
  return result;
}

ModelParameter scalar(const std::string& path, ParameterRole role) {
  return {.path = path, .tensor = at::zeros({1}).requires_grad_(true), .role = role};
}

double sum_of_addends() {
  return world().size * (world().size + 1) / 2.0;
}

TEST(FaultyReduction, SumsTheGradientsOfNormsAsEachBugSays) {
  const std::vector<ModelParameter> parameters = {
      scalar("decoder.layers.0.input_layernorm.weight", ParameterRole::kReplicatedNorm),
      scalar("decoder.layers.0.pre_mlp_layernorm.weight", ParameterRole::kReplicatedNorm),
      scalar("decoder.layers.0.mlp.router.weight", ParameterRole::kReplicatedRouter)};
  Parallel parallel{.world = world(), .tp = world(), .dp = {}, .sequence_parallel = true};
  const double own = 1.0 + world().rank;
  const double sum = sum_of_addends();
  const double ranks = world().size;
  const auto reduced = [&](const std::string& bug) {
    return reduced_with(bug, parallel, parameters);
  };
  using Gradients = std::vector<double>;
  EXPECT_EQ(reduced(""), (Gradients{sum, sum, sum}));
  EXPECT_EQ(reduced("sp-norm-grad"), (Gradients{own, own, sum}));
  EXPECT_EQ(reduced("sp-router-grad"), (Gradients{sum, sum, own}));
  EXPECT_EQ(reduced("sp-norm-grad-averaged"), (Gradients{sum / ranks, sum / ranks, sum}));
  EXPECT_EQ(reduced("sp-norm-hook-misplaced"), (Gradients{own, sum * ranks, sum}));
}

TEST(FaultyReduction, DividesGradientsAsEachBugSays) {
  const std::vector<ModelParameter> parameters = {scalar("p", ParameterRole::kSplit)};
  Parallel parallel{.world = world(), .tp = {}, .dp = {}, .dp_cp = world()};
  parallel.tp.size = 4;  // nothing is communicated over these
  parallel.dp.size = 8;
  const double sum = sum_of_addends();
  const double ranks = world().size;
  const auto divided = [&](const std::string& bug) {
    return reduced_with(bug, parallel, parameters).at(0);
  };
  EXPECT_EQ(divided(""), sum / ranks);
  EXPECT_EQ(divided("dp-divisor"), sum);
  EXPECT_EQ(divided("cp-left-out-of-divisor"), sum / 8.0);
  EXPECT_EQ(divided("loss-scale-not-applied"), sum / ranks / 32768.0);
  EXPECT_EQ(divided("grads-divided-by-world"), sum / ranks / 4.0);
}

}  // namespace
