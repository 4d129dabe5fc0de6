// Several micro-batches under way at a time, and tensors that go from stage to stage.
#include "hooks/training.h"

#include <gmock/gmock.h>

namespace ttrace {
namespace {

using testing::Captured;
using ::testing::ElementsAre;
using testing::fill_all;
using testing::Holder;
using ::testing::IsEmpty;
using testing::random_tensor;
using testing::trace_step;

TEST(Pipeline, WhatFollowsAResumedMicrobatchIsItsOwn) {
  Holder root;
  auto early = root.add("early", torch::nn::Linear(4, 4));
  auto late = root.add("late", torch::nn::Linear(4, 4));
  fill_all(root);
  const Captured captured = trace_step(root, [&](Step& step) {
    auto first = step.microbatch(0);
    const at::Tensor a = early->forward(random_tensor({2, 4}));
    auto second = step.microbatch(1);
    const at::Tensor b = early->forward(random_tensor({2, 4}) * 2);
    first.resume();  // forward through the next virtual stage
    const at::Tensor end = late->forward(a).sum();
    second.resume();
    const at::Tensor end_of_second = late->forward(b).sum();
    first.resume();
    end.backward();
    second.resume();
    end_of_second.backward();
  });
  EXPECT_THAT(captured.ids_with("/output/"),
              ElementsAre("s0/m0/output/early/0",
                          "s0/m1/output/early/0",
                          "s0/m0/output/late/0",
                          "s0/m1/output/late/0"));
  EXPECT_THAT(captured.ids_with("param_grad/early.weight"),
              ElementsAre("s0/m0/param_grad/early.weight/0", "s0/m1/param_grad/early.weight/0"));
  EXPECT_SAME(captured.tensor("s0/m1/param_grad/early.weight/0"),
              captured.tensor("s0/m0/param_grad/early.weight/0") * 2);
  EXPECT_THAT(captured.notes(), IsEmpty());
}

// A parameter outside all modules has no output whose gradient could reveal the micro-batch first.
TEST(Pipeline, GradientOfALooseParameterBelongsToTheResumedMicrobatch) {
  Holder root;
  const at::Tensor loose = root.register_parameter("loose", at::ones({4}));
  const Captured captured = trace_step(root, [&](Step& step) {
    auto first = step.microbatch(0);
    const at::Tensor a = (loose * 2).sum();
    auto second = step.microbatch(1);
    const at::Tensor b = (loose * 3).sum();
    first.resume();
    a.backward();
    second.resume();
    b.backward();
  });
  EXPECT_SAME(captured.tensor("s0/m0/param_grad/loose/0"), at::full({4}, 2.0F));
  EXPECT_SAME(captured.tensor("s0/m1/param_grad/loose/0"), at::full({4}, 3.0F));
}

// One process plays both stages: what the first sends the second receives.
TEST(Pipeline, TransfersAreRecordedAndAReceivedOutputIsNoInput) {
  Holder root;
  auto layer = root.add("layer", torch::nn::Linear(4, 4));
  auto next = root.add("next", torch::nn::Linear(4, 4));
  fill_all(root);
  at::Tensor output;
  at::Tensor gradient;
  const Captured captured = trace_step(root, [&](Step& step) {
    auto microbatch = step.microbatch(3);
    output = layer->forward(random_tensor({2, 4}));
    microbatch.sent("layer", output);
    at::Tensor input = output.detach().clone().requires_grad_();
    microbatch.received("layer", input);
    {
      Scope scope(root, "next_stage");
      scope.out(next->forward(scope.in(input)).tanh()).sum().backward();
    }
    gradient = input.grad();
    microbatch.sent("layer", gradient, 1);
    microbatch.received("layer", gradient, 1);
    output.backward(gradient);
  });
  EXPECT_THAT(captured.ids_with("input"), IsEmpty());
  EXPECT_SAME(captured.tensor("s0/m3/sent/layer/0"), output.detach());
  EXPECT_SAME(captured.tensor("s0/m3/received/layer/0"), output.detach());
  EXPECT_SAME(captured.tensor("s0/m3/sent/layer/1"), gradient);
  EXPECT_SAME(captured.tensor("s0/m3/received/layer/1"), gradient);
  EXPECT_SAME(captured.tensor("s0/m3/grad_output/layer/0"), gradient);
}

TEST(Pipeline, ReceivedOutputOfAnotherMicrobatchIsAnInput) {
  Holder root;
  const Captured captured = trace_step(root, [&](Step& step) {
    auto first = step.microbatch(0);
    const at::Tensor input = random_tensor({2, 4});
    first.received("layer", input);
    auto second = step.microbatch(1);
    Scope scope(root, "next");
    static_cast<void>(scope.out(scope.in(input)*2));
  });
  EXPECT_TRUE(captured.has("s0/m1/input/next/0"));
}

TEST(Pipeline, CallsAreInertWhereNothingIsTraced) {
  Holder root;
  const testing::PassEnvironment environment(testing::Variables{});
  auto session = Session::from_environment();
  auto step = session.step(0);
  auto microbatch = step.microbatch(0);
  microbatch.resume();
  microbatch.sent("layer", at::ones({1}));
  microbatch.received("layer", at::ones({1}));
  EXPECT_FALSE(session.active());
}

}  // namespace
}  // namespace ttrace
