// Gradients of outputs and parameters.
#include "hooks/training.h"

#include <gmock/gmock.h>

namespace ttrace {
namespace {

using testing::Captured;
using ::testing::ElementsAre;
using testing::fill_all;
using ::testing::HasSubstr;
using testing::Holder;
using ::testing::IsEmpty;
using testing::random_tensor;
using testing::trace_microbatch;
using testing::trace_step;

TEST(Gradients, OutputGradientsEqualRetainGrad) {
  Holder root;
  auto fc1 = root.add("fc1", torch::nn::Linear(4, 4));
  auto norm = root.add("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({4})));
  auto fc2 = root.add("fc2", torch::nn::Linear(4, 4));
  fill_all(root);
  std::vector<at::Tensor> outputs;
  const Captured captured = trace_microbatch(root, [&] {
    at::Tensor x = random_tensor({2, 3, 4});
    for (auto& forward : std::vector<std::function<at::Tensor(at::Tensor)>>{
             [&](at::Tensor t) { return fc1->forward(t); },
             [&](at::Tensor t) { return norm->forward(t); },
             [&](at::Tensor t) { return fc2->forward(t); }}) {
      x = forward(x);
      x.retain_grad();
      outputs.push_back(x);
    }
    (x.tanh() + outputs[0]).pow(2).sum().backward();
  });
  EXPECT_SAME(captured.tensor("s0/m0/grad_output/fc1/0"), outputs[0].grad());
  EXPECT_SAME(captured.tensor("s0/m0/grad_output/norm/0"), outputs[1].grad());
  EXPECT_SAME(captured.tensor("s0/m0/grad_output/fc2/0"), outputs[2].grad());
  EXPECT_THAT(captured.notes(), IsEmpty());
}

TEST(Gradients, InputsWithoutAProducerGetGradInput) {
  Holder root;
  at::Tensor x = random_tensor({2, 3}).requires_grad_();
  const Captured captured = trace_microbatch(root, [&] {
    Scope scope(root, "core");
    const at::Tensor hidden = scope.in(x * 3, 1);
    scope.out(hidden * 2).sum().backward();
  });
  EXPECT_SAME(captured.tensor("s0/m0/grad_input/core/1"), at::full({2, 3}, 2.0));
  EXPECT_SAME(captured.tensor("s0/m0/grad_output/core/0"), at::ones({2, 3}));
}

TEST(Gradients, LossAndItsGradientAreRecorded) {
  Holder root;
  auto fc = root.add("fc", torch::nn::Linear(4, 1));
  fill_all(root);
  const Captured captured = trace_step(root, [&](Step& step) {
    auto microbatch = step.microbatch(0);
    microbatch.data("tokens", at::arange(3));
    const at::Tensor per_token = fc->forward(random_tensor({3, 4})).squeeze(1);
    microbatch.loss(per_token);
    per_token.mean().backward();
  });
  EXPECT_SAME(captured.tensor("s0/m0/data/tokens/0"), at::arange(3));
  EXPECT_EQ(captured.record("s0/m0/loss/loss/0").shape, std::vector<std::int64_t>({3}));
  EXPECT_SAME(captured.tensor("s0/m0/grad_output/loss/0"), at::full({3}, 1.0F / 3));
}

TEST(Gradients, ParameterGradientsAreOneMicrobatchsOwn) {
  Holder root;
  auto fc = root.add("fc", torch::nn::Linear(4, 4));
  fill_all(root);
  const Captured captured = trace_step(root, [&](Step& step) {
    for (int index = 0; index < 3; ++index) {
      const auto microbatch = step.microbatch(index);
      fc->forward(random_tensor({2, 4}) * (index + 1)).sum().backward();
    }
    step.gradients_reduced({{"fc.weight", fc->weight.grad()}, {"fc.bias", fc->bias.grad()}});
  });
  const at::Tensor first = captured.tensor("s0/m0/param_grad/fc.weight/0");
  EXPECT_TRUE(at::allclose(captured.tensor("s0/m1/param_grad/fc.weight/0"), first * 2));
  EXPECT_TRUE(at::allclose(captured.tensor("s0/m2/param_grad/fc.weight/0"), first * 3));
  EXPECT_SAME(captured.tensor("s0/main_grad/fc.weight/0"), fc->weight.grad());
  EXPECT_TRUE(at::allclose(fc->weight.grad(), first * 6));
}

TEST(Gradients, InPlaceConsumerDoesNotDisturbTheOldValuesGradient) {
  Holder root;
  auto fc = root.add("fc", torch::nn::Linear(4, 4));
  fill_all(root);
  const Captured captured = trace_microbatch(root, [&] {
    at::Tensor y = fc->forward(random_tensor({2, 3, 4}));
    y.mul_(3);
    y.sum().backward();
  });
  EXPECT_SAME(captured.tensor("s0/m0/grad_output/fc/0"), at::full({2, 3, 4}, 3.0F));
}

TEST(Gradients, AdditionInPlaceToAViewStillYieldsTheGradient) {
  Holder root;
  const at::Tensor x = random_tensor({6, 4}).requires_grad_();
  const Captured captured = trace_microbatch(root, [&] {
    at::Tensor base = x * 2;
    at::Tensor view = base.view({2, 3, 4});
    Scope scope(root, "core");
    view = scope.out(view);
    view.add_(1);
    (view * 5).sum().backward();
  });
  EXPECT_SAME(captured.tensor("s0/m0/output/core/0"), (x * 2).view({2, 3, 4}).detach());
  EXPECT_SAME(captured.tensor("s0/m0/grad_output/core/0"), at::full({2, 3, 4}, 5.0F));
  EXPECT_THAT(captured.notes(), IsEmpty());
}

TEST(Gradients, LostHookIsReported) {
  Holder root;
  const at::Tensor x = random_tensor({6, 4}).requires_grad_();
  const Captured captured = trace_microbatch(root, [&] {
    at::Tensor view = (x * 2).view({2, 3, 4});
    Scope scope(root, "core");
    view = scope.out(view);
    view.mul_(3);  // rebuilds the view's history, and scales its gradient
    view.add_(1);
    view.sum().backward();
  });
  EXPECT_FALSE(captured.has("s0/m0/grad_output/core/0"));
  EXPECT_THAT(captured.notes(), ElementsAre(HasSubstr("s0/m0/output/core/0 got no gradient")));
}

TEST(Gradients, GradientsBelongToTheMicrobatchOfTheirForward) {
  Holder root;
  auto fc = root.add("fc", torch::nn::Linear(4, 4));
  fill_all(root);
  const Captured captured = trace_step(root, [&](Step& step) {
    auto first = step.microbatch(0);
    const at::Tensor a = fc->forward(random_tensor({2, 4}));
    auto second = step.microbatch(1);
    const at::Tensor b = fc->forward(random_tensor({2, 4}) * 2);
    a.sum().backward();
    b.sum().backward();
  });
  EXPECT_THAT(captured.ids_with("grad"),
              ElementsAre("s0/m0/grad_output/fc/0",
                          "s0/m0/param_grad/fc.bias/0",
                          "s0/m0/param_grad/fc.weight/0",
                          "s0/m1/grad_output/fc/0",
                          "s0/m1/param_grad/fc.bias/0",
                          "s0/m1/param_grad/fc.weight/0"));
}

TEST(Gradients, FrozenParametersAndEvaluationNeedNoHooks) {
  Holder root;
  auto fc = root.add("fc", torch::nn::Linear(4, 4));
  fill_all(root);
  fc->bias.requires_grad_(false);
  const Captured captured = trace_microbatch(root, [&] {
    {
      const at::NoGradGuard no_grad;
      static_cast<void>(fc->forward(random_tensor({2, 4})));
    }
    fc->forward(random_tensor({2, 4})).sum().backward();
  });
  EXPECT_THAT(captured.ids_with("grad"),
              ElementsAre("s0/m0/grad_output/fc/0#1", "s0/m0/param_grad/fc.weight/0"));
}

}  // namespace
}  // namespace ttrace
