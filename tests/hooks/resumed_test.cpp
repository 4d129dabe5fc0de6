// Steps before the traced ones: noise in them, what they leave, and programs that begin after them.
#include "hooks/training.h"
#include "trace/file/manifest.h"
#include "trace/file/noise_table.h"
#include "trace/file/trace_writer.h"

#include <ttrace/error.h>

#include <gmock/gmock.h>

#include <filesystem>

namespace ttrace {
namespace {

using testing::candidate_pass;
using testing::Captured;
using testing::fill_all;
using ::testing::HasSubstr;
using testing::Holder;
using testing::noise_pass;
using testing::PassEnvironment;
using testing::random_tensor;
using testing::reference_pass;
using testing::TemporaryDirectory;
using testing::with;

constexpr auto kParameter = "s2/param/fc.weight/0";
constexpr auto kMoment = "s2/state_before/fc.weight.exp_avg/0";

// What the optimizer has of the layer's weight.
OptimizerEntry entry(const at::Tensor& weight, const at::Tensor& moment) {
  OptimizerEntry result;
  result.path = "fc.weight";
  result.param = weight;
  result.exp_avg = moment;
  return result;
}

// A linear layer and its optimizer, which keeps one moment. The program runs iterations up to 2, of
// which the last one is traced.
class Resumed : public ::testing::Test {
 protected:
  // `loads`: what the program does after it has attached.
  static void train(
      testing::Variables variables,
      std::int64_t first,
      std::uint64_t seed = 1,
      const std::function<void(at::Tensor&)>& loads = [](at::Tensor&) {}) {
    const PassEnvironment environment(with(std::move(variables), "TTRACE_STEPS", "2"));
    Holder root;
    auto fc = root.add("fc", torch::nn::Linear(torch::nn::LinearOptions(6, 6).bias(false)));
    at::Tensor weight = fc->weight;
    {
      const at::NoGradGuard no_grad;
      weight.copy_(random_tensor({6, 6}, seed));
    }
    at::Tensor moment = at::zeros({6, 6});
    auto session = Session::from_environment();
    session.attach(root, Layout(), Annotations());
    session.load_parameters();
    {
      const at::NoGradGuard no_grad;
      loads(weight);
    }
    for (std::int64_t iteration = first; iteration < 3; ++iteration) {
      auto step = session.step(iteration);
      OptimizerEntry before = entry({}, moment);
      before.states = {{"count", at::tensor(iteration)}};
      step.states_before({before}, {{"seen", at::tensor(iteration)}});
      auto microbatch = step.microbatch(0);
      const at::Tensor loss = fc->forward(random_tensor({8, 6})).tanh();
      microbatch.loss(loss);
      loss.sum().backward();
      step.gradients_reduced({{"fc.weight", weight.grad()}});
      const at::NoGradGuard no_grad;
      moment.mul_(0.9).add_(weight.grad(), 0.1);
      weight.sub_(moment, 0.1);
      step.parameters_updated({entry(weight, moment)});
      weight.mutable_grad().reset();
    }
  }

  void make_reference() { train(reference_pass(trace_.path()), 0); }

  TemporaryDirectory trace_;
  TemporaryDirectory other_;
};

TEST_F(Resumed, TheFirstTracedStepRecordsWhatItFinds) {
  make_reference();
  const Captured step(step_file(trace_.path(), 2, 0));
  EXPECT_GT(step.tensor(kMoment).abs().max().item<float>(), 0.0F);
  EXPECT_EQ(step.tensor("s2/state_before/fc.weight.count/0").item<std::int64_t>(), 2);
  EXPECT_EQ(step.tensor("s2/state_before/seen/0").item<std::int64_t>(), 2);
  EXPECT_EQ(read_manifest(trace_.path()).first_iteration, 0);
  // Iteration 0 begins with nothing.
  const auto captured = testing::trace_step(Holder(), [](Step& first) {
    first.states_before({entry({}, at::zeros({6, 6}))});
  });
  EXPECT_FALSE(captured.has("s0/state_before/fc.weight.exp_avg/0"));
}

// Symptom: a run that was interrupted on several ranks had no bound for what the steps before had
// rounded, because noise began with the traced step.
TEST_F(Resumed, NoisePassesCarryNoiseThroughTheStepsBefore) {
  make_reference();
  train(noise_pass(trace_.path(), 1), 0);
  const std::vector<NoisePass> passes = read_noise(trace_.path());
  ASSERT_EQ(passes.size(), 1U);
  std::map<std::string, double> noise;
  for (const NoiseRow& row : passes.front().rows) {
    EXPECT_EQ(row.id.step, 2);
    noise[to_string(row.id)] = row.sum_squared;
  }
  EXPECT_GT(noise.at(kParameter), 0.0);
  EXPECT_GT(noise.at(kMoment), 0.0);
  EXPECT_EQ(noise.at("s2/state_before/fc.weight.count/0"), 0.0);
}

TEST_F(Resumed, APassThatMovesNothingLeavesTheStepsBeforeAlone) {
  make_reference();
  train(noise_pass(trace_.path(), 0), 0);
  for (const NoisePass& pass : read_noise(trace_.path())) {
    for (const NoiseRow& row : pass.rows) {
      EXPECT_EQ(row.sum_squared, 0.0) << to_string(row.id);
    }
  }
}

// Symptom: a resumed candidate ran on from the values that the reference began iteration 0 with.
TEST_F(Resumed, StartValuesOfAnotherIterationAreRefused) {
  make_reference();
  const auto resumed = candidate_pass(other_.path(), trace_.path());
  try {
    train(resumed, 2, 5);
    FAIL() << "accepted";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.message(), HasSubstr("this program begins with iteration 2"));
    EXPECT_THAT(error.message(), HasSubstr("the reference began with iteration 0"));
    EXPECT_THAT(error.message(), HasSubstr("--start own"));
  }
}

TEST_F(Resumed, OwnStartValuesAreKept) {
  make_reference();
  train(with(candidate_pass(other_.path(), trace_.path()), "TTRACE_START", "own"), 2, 5);
  const Captured step(step_file(other_.path(), 2, 0));
  EXPECT_SAME(step.tensor(kParameter), random_tensor({6, 6}, 5));
}

TEST_F(Resumed, ValuesThatAProgramLoadsLaterAreItsOwn) {
  make_reference();
  const at::Tensor loaded = random_tensor({6, 6}, 9);
  train(candidate_pass(other_.path(), trace_.path()), 2, 5, [&](at::Tensor& weight) {
    weight.copy_(loaded);
  });
  EXPECT_SAME(Captured(step_file(other_.path(), 2, 0)).tensor(kParameter), loaded);
}

}  // namespace
}  // namespace ttrace
