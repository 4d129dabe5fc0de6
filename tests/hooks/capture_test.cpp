// Tests which tensors of a forward become records, under which names and with which values.
#include "hooks/training.h"

#include <gmock/gmock.h>
#include <torch/csrc/autograd/custom_function.h>

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

TEST(Capture, OutputOfA3dLinearIsTakenAfterItsBias) {
  Holder root;
  auto fc = root.add("fc", torch::nn::Linear(4, 3));
  fill_all(root);
  at::Tensor y;
  const Captured captured = trace_microbatch(root, [&] {
    y = fc->forward(random_tensor({2, 5, 4}));
  });
  EXPECT_THAT(captured.ids_with("/output/"), ElementsAre("s0/m0/output/fc/0"));
  EXPECT_SAME(captured.tensor("s0/m0/output/fc/0"), y);
  EXPECT_TRUE(captured.record("s0/m0/output/fc/0").inferred);
}

TEST(Capture, LinearWithoutBiasAnd2dLinear) {
  Holder root;
  auto plain = root.add("plain", torch::nn::Linear(torch::nn::LinearOptions(4, 4).bias(false)));
  auto flat = root.add("flat", torch::nn::Linear(4, 3));
  fill_all(root);
  at::Tensor a;
  at::Tensor b;
  const Captured captured = trace_microbatch(root, [&] {
    a = plain->forward(random_tensor({2, 5, 4}));
    b = flat->forward(a[0]);
  });
  EXPECT_THAT(captured.ids_with("/output/"),
              ElementsAre("s0/m0/output/plain/0", "s0/m0/output/flat/0"));
  EXPECT_SAME(captured.tensor("s0/m0/output/plain/0"), a);
  EXPECT_SAME(captured.tensor("s0/m0/output/flat/0"), b);
}

TEST(Capture, LayerNormAndEmbeddingInBf16) {
  Holder root;
  auto words = root.add("words", torch::nn::Embedding(11, 8));
  auto norm = root.add("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({8})));
  root.to(at::kBFloat16);
  fill_all(root);
  at::Tensor a;
  at::Tensor b;
  const Captured captured = trace_microbatch(root, [&] {
    a = words->forward(at::arange(6).remainder(11).view({2, 3}));
    b = norm->forward(a);
  });
  EXPECT_THAT(captured.ids_with("/output/"),
              ElementsAre("s0/m0/output/words/0", "s0/m0/output/norm/0"));
  EXPECT_SAME(captured.tensor("s0/m0/output/words/0"), a);
  EXPECT_SAME(captured.tensor("s0/m0/output/norm/0"), b);
  EXPECT_EQ(captured.record("s0/m0/output/norm/0").type, ElementType::kBF16);
}

TEST(Capture, ModuleThatTakesAnotherOnesResultIsAnEdge) {
  Holder root;
  auto first = root.add("first", torch::nn::Linear(4, 4));
  auto norm = root.add("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({4})));
  auto block = root.add("block", torch::nn::Linear(4, 4));
  fill_all(root);
  const Captured captured = trace_microbatch(root, [&] {
    at::Tensor x = norm->forward(first->forward(random_tensor({2, 5, 4})));
    Scope scope(root, "block_scope");
    x = scope.in(x);
    x = scope.out(block->forward(x));
  });
  EXPECT_THAT(captured.edges(),
              ElementsAre("s0/m0/input/norm/0 <- s0/m0/output/first/0",
                          "s0/m0/input/block_scope/0 <- s0/m0/output/norm/0"));
}

TEST(Capture, ResultThatSomethingWroteToOrCopiedIsNoSource) {
  Holder root;
  auto first = root.add("first", torch::nn::Linear(4, 4));
  auto second = root.add("second", torch::nn::Linear(4, 4));
  auto third = root.add("third", torch::nn::Linear(4, 4));
  fill_all(root);
  const Captured captured = trace_microbatch(root, [&] {
    const at::Tensor x = first->forward(random_tensor({2, 5, 4}));
    const at::Tensor y = second->forward(x.clone());
    {
      const at::NoGradGuard no_grad;
      y.mul_(2.0);
    }
    static_cast<void>(third->forward(y));
  });
  EXPECT_THAT(captured.edges(), IsEmpty());
}

TEST(Capture, TiedWeightInALeafScopeBelongsToTheScope) {
  struct OutputLayer : torch::nn::Module {};
  Holder root;
  auto words = root.add("words", torch::nn::Embedding(11, 8));
  auto head = root.register_module("head", std::make_shared<OutputLayer>());
  fill_all(root);
  at::Tensor logits;
  const Captured captured = trace_microbatch(root, [&] {
    at::Tensor x = words->forward(at::arange(6));
    Scope scope(*head);
    x = scope.in(x);
    logits = scope.out(at::matmul(x, words->weight.t()));
  });
  EXPECT_THAT(captured.ids_with("/m0/"),
              ElementsAre("s0/m0/output/words/0", "s0/m0/output/head/0"));
  EXPECT_SAME(captured.tensor("s0/m0/output/head/0"), logits);
  EXPECT_FALSE(captured.record("s0/m0/output/head/0").inferred);
}

// Forward and, through a scope of its own, backward; neither is a value of the graph.
TEST(Capture, ScalesAndOperandsAreRecordedBeforeTheOutputAndWithinBackward) {
  Holder root;
  auto fc = root.add("fc", torch::nn::Linear(4, 3));
  fill_all(root);
  const at::Tensor per_tensor = at::full({}, 0.5F);
  const at::Tensor per_block = at::tensor({0.5F, 2.0F}).view({1, 2}).to(at::kFloat8_e8m0fnu);
  const at::Tensor values = random_tensor({2, 4}, 5);
  const at::Tensor input = random_tensor({2, 4});  // a draw inside of the scope would be recorded
  const Captured captured = trace_microbatch(root, [&] {
    at::Tensor y;
    {
      Scope scope(*fc);
      const at::Tensor x = scope.in(input);
      scope.amax_history(at::tensor({448.0F, 0.0F}), 0);
      scope.scale(per_tensor, 0);
      scope.operand(values, 0);
      scope.scale(per_block, 1);
      const at::Tensor product = at::matmul(x, fc->weight.t());
      product.register_hook([&](const at::Tensor& gradient) {
        Scope backward(*fc);
        backward.scale(per_tensor, 2);
        backward.operand(gradient, 2);
        return gradient;
      });
      y = scope.out(product + fc->bias);
    }
    y.sum().backward();
  });
  EXPECT_THAT(captured.ids_with("fc/"),
              ElementsAre("s0/m0/input/fc/0",
                          "s0/m0/amax_history/fc/0",
                          "s0/m0/scale/fc/0",
                          "s0/m0/operand/fc/0",
                          "s0/m0/scale/fc/1",
                          "s0/m0/output/fc/0",
                          "s0/m0/grad_output/fc/0",
                          "s0/m0/scale/fc/2",
                          "s0/m0/operand/fc/2"));
  EXPECT_SAME(captured.tensor("s0/m0/operand/fc/0"), values);
  EXPECT_EQ(captured.record("s0/m0/scale/fc/1").type, ElementType::kE8M0);
  EXPECT_SAME(captured.tensor("s0/m0/scale/fc/1").view(at::kByte), per_block.view(at::kByte));
  EXPECT_SAME(captured.tensor("s0/m0/scale/fc/2"), per_tensor);
}

TEST(Capture, ScopeAroundChildrenLeavesThemTheirOutputs) {
  Holder root;
  auto layer = root.add("layer", std::make_shared<Holder>());
  auto fc1 = layer->add("fc1", torch::nn::Linear(4, 4));
  auto fc2 = layer->add("fc2", torch::nn::Linear(4, 4));
  fill_all(root);
  const at::Tensor input = random_tensor({2, 4});  // a draw inside of the scope would be recorded
  const Captured captured = trace_microbatch(root, [&] {
    Scope scope(*layer);
    const at::Tensor x = scope.in(input);
    at::Tensor y = fc1->forward(x);
    {
      Scope core(*layer, "core");
      y = core.out(core.in(y).tanh());
    }
    static_cast<void>(scope.out(fc2->forward(y) + x));
  });
  EXPECT_THAT(captured.ids_with("/m0/"),
              ElementsAre("s0/m0/input/layer/0",
                          "s0/m0/output/layer.fc1/0",
                          "s0/m0/output/layer.core/0",
                          "s0/m0/output/layer.fc2/0",
                          "s0/m0/output/layer/0"));
}

TEST(Capture, ScopeOfAModuleThatIsNoObjectIsNamedByItsPath) {
  const Holder root;
  const at::Tensor x = random_tensor({2, 3}, 1);
  const at::Tensor y = random_tensor({2, 3}, 2);
  const Captured captured = trace_microbatch(root, [&] {
    Scope outer(ModulePath{"blocks.0"});
    EXPECT_SAME(outer.in(x), x);
    {
      Scope inner(ModulePath{"blocks.0.mlp"});
      EXPECT_SAME(inner.out(y, 1), y);
    }
    EXPECT_SAME(outer.out(y), y);
  });
  EXPECT_THAT(
      captured.ids_with("/m0/"),
      ElementsAre(
          "s0/m0/input/blocks.0/0", "s0/m0/output/blocks.0.mlp/1", "s0/m0/output/blocks.0/0"));
  EXPECT_SAME(captured.tensor("s0/m0/output/blocks.0.mlp/1"), y);
}

TEST(Capture, PartOfATensorThatOnlyWrapsItIsRecordedAndItsGradientWhenItArrives) {
  const Holder root;
  const at::Tensor input = random_tensor({2, 3}, 1);
  const at::Tensor output = random_tensor({2, 3}, 2);
  const at::Tensor gradient = random_tensor({2, 3}, 3);
  const Captured captured = trace_microbatch(root, [&] {
    Scope scope(ModulePath{"fc"});
    const std::int64_t of_input = scope.in_local(input, 0, /*has_gradient=*/true).gradient;
    const std::int64_t of_output = scope.out_local(output, 0, /*has_gradient=*/true).gradient;
    EXPECT_EQ(scope.out_local(output, 1, /*has_gradient=*/false).gradient, Scope::kNoGradient);
    EXPECT_NE(of_input, Scope::kNoGradient);
    EXPECT_SAME(Scope::local_gradient(of_output, gradient), gradient);
    EXPECT_SAME(Scope::local_gradient(of_input, gradient * 2), gradient * 2);
    EXPECT_SAME(Scope::local_gradient(Scope::kNoGradient, gradient), gradient);
    EXPECT_SAME(Scope::local_gradient(of_output + 100, gradient), gradient);
  });
  EXPECT_THAT(captured.ids_with("/m0/"),
              ElementsAre("s0/m0/input/fc/0",
                          "s0/m0/output/fc/0",
                          "s0/m0/output/fc/1",
                          "s0/m0/grad_output/fc/0",
                          "s0/m0/grad_input/fc/0"));
  EXPECT_SAME(captured.tensor("s0/m0/grad_output/fc/0"), gradient);
  EXPECT_SAME(captured.tensor("s0/m0/grad_input/fc/0"), gradient * 2);
}

TEST(Capture, PartThatATracedModuleMadeIsNoInputOfTheNext) {
  const Holder root;
  const at::Tensor part = random_tensor({2, 3});
  const Captured captured = trace_microbatch(root, [&] {
    {
      Scope first(ModulePath{"first"});
      static_cast<void>(first.out_local(part, 0, /*has_gradient=*/false));
    }
    Scope second(ModulePath{"second"});
    EXPECT_EQ(second.in_local(part, 0, /*has_gradient=*/true).gradient, Scope::kNoGradient);
  });
  EXPECT_THAT(captured.ids_with("/m0/"), ElementsAre("s0/m0/output/first/0"));
  EXPECT_THAT(captured.edges(), ElementsAre("s0/m0/input/second/0 <- s0/m0/output/first/0"));
}

TEST(Capture, SecondCallOfAModuleIsNumbered) {
  Holder root;
  auto fc = root.add("fc", torch::nn::Linear(4, 4));
  fill_all(root);
  at::Tensor once;
  at::Tensor twice;
  const Captured captured = trace_microbatch(root, [&] {
    once = fc->forward(random_tensor({2, 3, 4}));
    twice = fc->forward(once);
  });
  EXPECT_THAT(captured.ids_with("/m0/"), ElementsAre("s0/m0/output/fc/0", "s0/m0/output/fc/0#1"));
  EXPECT_SAME(captured.tensor("s0/m0/output/fc/0"), once);
  EXPECT_SAME(captured.tensor("s0/m0/output/fc/0#1"), twice);
}

TEST(Capture, ParametersInOneFlatStorageAreToldApart) {
  Holder root;
  auto first = root.add("first", torch::nn::Linear(torch::nn::LinearOptions(4, 4).bias(false)));
  auto second = root.add("second", torch::nn::Linear(torch::nn::LinearOptions(4, 4).bias(false)));
  fill_all(root);
  const at::Tensor flat =
      at::cat({first->weight.detach().view(-1), second->weight.detach().view(-1)});
  first->weight.set_data(flat.narrow(0, 0, 16).view({4, 4}));
  second->weight.set_data(flat.narrow(0, 16, 16).view({4, 4}));
  at::Tensor a;
  at::Tensor b;
  const Captured captured = trace_microbatch(root, [&] {
    a = second->forward(random_tensor({3, 4}));
    b = first->forward(a);
  });
  EXPECT_SAME(captured.tensor("s0/m0/output/second/0"), a);
  EXPECT_SAME(captured.tensor("s0/m0/output/first/0"), b);
}

TEST(Capture, ParametersMovedToABucketAfterAttachAreStillFound) {
  Holder root;
  auto fc = root.add("fc", torch::nn::Linear(4, 4));
  fill_all(root);
  const testing::TemporaryDirectory directory;
  const testing::PassEnvironment environment(testing::reference_pass(directory.path()));
  {
    auto session = Session::from_environment();
    session.attach(root, Layout(), Annotations());
    fc->weight.set_data(fc->weight.detach().clone());
    auto step = session.step(0);
    const auto microbatch = step.microbatch(0);
    static_cast<void>(fc->forward(random_tensor({2, 4})));
  }
  EXPECT_TRUE(Captured(testing::step0(directory)).has("s0/m0/output/fc/0"));
}

TEST(Capture, CastOfAParameterInheritsItsOwner) {
  Holder root;
  auto fc = root.add("fc", torch::nn::Linear(torch::nn::LinearOptions(4, 4).bias(false)));
  fill_all(root);
  at::Tensor y;
  const Captured captured = trace_microbatch(root, [&] {
    const at::Tensor narrow = fc->weight.to(at::kBFloat16) * 2;
    y = at::matmul(random_tensor({3, 4}).to(at::kBFloat16), narrow.t());
  });
  EXPECT_THAT(captured.ids_with("/m0/"), ElementsAre("s0/m0/output/fc/0"));
  EXPECT_SAME(captured.tensor("s0/m0/output/fc/0"), y);
}

TEST(Capture, ValueIsTheOneAtHookTime) {
  Holder root;
  auto fc = root.add("fc", torch::nn::Linear(4, 4));
  fill_all(root);
  at::Tensor before_relu;
  at::Tensor before_zero;
  const Captured captured = trace_microbatch(root, [&] {
    at::Tensor y = fc->forward(random_tensor({2, 3, 4}));
    before_relu = y.detach().clone();
    y.relu_();
    Scope scope(root, "core");
    at::Tensor z = scope.out(y * 2);
    before_zero = z.detach().clone();
    z.detach().zero_();
  });
  EXPECT_SAME(captured.tensor("s0/m0/output/fc/0"), before_relu);
  EXPECT_SAME(captured.tensor("s0/m0/output/core/0"), before_zero);
}

TEST(Capture, InputIsRecordedOnlyWhereNoRecordedOutputIsHandedOn) {
  Holder root;
  auto fc = root.add("fc", torch::nn::Linear(4, 4));
  fill_all(root);
  const Captured captured = trace_microbatch(root, [&] {
    at::Tensor y = fc->forward(random_tensor({2, 4}));
    {
      Scope scope(root, "same");
      static_cast<void>(scope.in(y));
    }
    {
      Scope scope(root, "viewed");
      static_cast<void>(scope.in(y.view({4, 2})));
    }
    y.detach().add_(1);
    {
      Scope scope(root, "changed");
      static_cast<void>(scope.in(y, 2));
    }
  });
  EXPECT_THAT(captured.ids_with("/input/"),
              ElementsAre("s0/m0/input/viewed/0", "s0/m0/input/changed/2"));
}

TEST(Capture, ValueWithoutGradientSaysWhetherOneWasPossible) {
  Holder root;
  auto fc = root.add("fc", torch::nn::Linear(4, 4));
  fill_all(root);
  const Captured captured = trace_microbatch(root, [&] {
    {
      Scope scope(root, "table");
      static_cast<void>(scope.in(random_tensor({2, 4})));
    }
    {
      const at::AutoGradMode without_gradients(false);
      Scope scope(root, "checkpointed");
      static_cast<void>(scope.in(random_tensor({2, 4})));
    }
    Scope scope(root, "activation");
    static_cast<void>(scope.in(fc->forward(random_tensor({2, 4})) * 2));
  });
  EXPECT_TRUE(captured.record("s0/m0/input/table/0").needs_no_gradient);
  EXPECT_FALSE(captured.record("s0/m0/input/checkpointed/0").needs_no_gradient);
  EXPECT_FALSE(captured.record("s0/m0/input/activation/0").needs_no_gradient);
}

// Recomputes its forward in backward, as activation checkpointing does.
struct Recompute : torch::autograd::Function<Recompute> {
  static at::Tensor forward(torch::autograd::AutogradContext* context,
                            const at::Tensor& x,
                            torch::nn::Linear* fc) {
    context->save_for_backward({x});
    context->saved_data["fc"] = reinterpret_cast<std::int64_t>(fc);
    return (*fc)->forward(x);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    auto* fc = reinterpret_cast<torch::nn::Linear*>(context->saved_data["fc"].toInt());
    const at::Tensor x = context->get_saved_variables()[0].detach().requires_grad_();
    at::Tensor y;
    {
      const at::AutoGradMode with_gradients(true);
      y = (*fc)->forward(x);
    }
    y.backward(gradients[0]);
    return {x.grad(), at::Tensor()};
  }
};

TEST(Capture, RecomputedForwardIsMarkedAndItsGradientComesOnce) {
  Holder root;
  auto fc = root.add("fc", torch::nn::Linear(4, 4));
  fill_all(root);
  const at::Tensor weights = random_tensor({2, 3, 4}, 3);
  const Captured captured = trace_microbatch(root, [&] {
    const at::Tensor x = random_tensor({2, 3, 4}).requires_grad_();
    (Recompute::apply(x, &fc) * weights).sum().backward();
  });
  EXPECT_THAT(captured.ids_with("/m0/"),
              ElementsAre("s0/m0/output/fc/0",
                          "s0/m0/output/fc/0~",
                          "s0/m0/grad_output/fc/0",
                          "s0/m0/param_grad/fc.bias/0",
                          "s0/m0/param_grad/fc.weight/0"));
  EXPECT_SAME(captured.tensor("s0/m0/output/fc/0"), captured.tensor("s0/m0/output/fc/0~"));
  EXPECT_SAME(captured.tensor("s0/m0/grad_output/fc/0"), weights);
}

// Symptom: on Megatron's first pipeline stage with full recomputation, the second forward of a
// micro-batch, and its gradients, were records of the micro-batch after it.
TEST(Capture, CheckpointedOutputThatIsSentIsRecomputedInItsOwnMicrobatch) {
  Holder root;
  auto fc = root.add("fc", torch::nn::Linear(4, 4));
  fill_all(root);
  const Captured captured = trace_step(root, [&](Step& step) {
    std::vector<at::Tensor> sent;
    const auto forward = [&](std::int64_t number) {
      auto microbatch = step.microbatch(number);
      const at::Tensor x = random_tensor({2, 4}, static_cast<int>(number)).requires_grad_();
      sent.push_back(Recompute::apply(x, &fc));
      microbatch.sent("fc", sent.back());
      return microbatch;
    };
    const auto first = forward(0);
    const auto second = forward(1);
    sent[0].backward(random_tensor({2, 4}, 2));
    sent[1].backward(random_tensor({2, 4}, 3));
  });
  for (const std::string microbatch : {"s0/m0", "s0/m1"}) {
    EXPECT_SAME(captured.tensor(microbatch + "/output/fc/0"),
                captured.tensor(microbatch + "/output/fc/0~"));
  }
  EXPECT_SAME(captured.tensor("s0/m0/grad_output/fc/0"), random_tensor({2, 4}, 2));
  EXPECT_SAME(captured.tensor("s0/m1/grad_output/fc/0"), random_tensor({2, 4}, 3));
}

// A scope inside a recomputed part, with a mask; both runs report the same.
struct RecomputeScope : torch::autograd::Function<RecomputeScope> {
  static at::Tensor part(const Holder& root, const at::Tensor& x) {
    Scope scope(root, "core");
    const at::Tensor kept = scope.mask(at::arange(6).remainder(3).ge(1).view({2, 3}));
    return scope.out(scope.in(x * 2).masked_fill(kept, 0) * 5);
  }
  static at::Tensor forward(torch::autograd::AutogradContext* context,
                            const at::Tensor& x,
                            Holder* root) {
    context->save_for_backward({x});
    context->saved_data["root"] = reinterpret_cast<std::int64_t>(root);
    return part(*root, x);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const auto* root = reinterpret_cast<Holder*>(context->saved_data["root"].toInt());
    const at::Tensor x = context->get_saved_variables()[0].detach().requires_grad_();
    at::Tensor y;
    {
      const at::AutoGradMode with_gradients(true);
      y = part(*root, x);
    }
    y.backward(gradients[0]);
    return {x.grad(), at::Tensor()};
  }
};

TEST(Capture, ScopesAndMasksOfARecomputedForwardAreMarked) {
  Holder root;
  const Captured captured = trace_microbatch(root, [&] {
    const at::Tensor x = random_tensor({2, 3}).requires_grad_();
    RecomputeScope::apply(x, &root).sum().backward();
  });
  EXPECT_THAT(captured.ids_with("/m0/"),
              ElementsAre("s0/m0/draw/core/0",
                          "s0/m0/input/core/0",
                          "s0/m0/output/core/0",
                          "s0/m0/draw/core/0~",
                          "s0/m0/input/core/0~",
                          "s0/m0/output/core/0~",
                          "s0/m0/grad_output/core/0",
                          "s0/m0/grad_input/core/0"));
  for (const std::string kind : {"draw", "input", "output"}) {
    const std::string id = "s0/m0/" + kind + "/core/0";
    EXPECT_SAME(captured.tensor(id), captured.tensor(id + "~"));
  }
  EXPECT_EQ(captured.record("s0/m0/draw/core/0").type, ElementType::kBool);
}

TEST(Capture, OptimizerOperatorsAreNoRecords) {
  Holder root;
  auto fc = root.add("fc", torch::nn::Linear(4, 4));
  fill_all(root);
  const at::Tensor x = random_tensor({2, 4});
  const Captured captured = trace_step(root, [&](Step& step) {
    {
      const auto microbatch = step.microbatch(0);
      fc->forward(x).sum().backward();
    }
    step.gradients_reduced({{"fc.weight", fc->weight.grad()}});
    const at::NoGradGuard no_grad;
    fc->weight.add_(fc->weight.grad(), -0.1);
    step.scalar("grad_norm", 2.5);
    step.parameters_updated({{"fc.weight", fc->weight, {}, fc->weight.grad(), {}}});
  });
  EXPECT_THAT(captured.ids_with("s0/"),
              ElementsAre("s0/param/fc.weight/0",
                          "s0/param/fc.bias/0",
                          "s0/m0/output/fc/0",
                          "s0/m0/grad_output/fc/0",
                          "s0/m0/param_grad/fc.bias/0",
                          "s0/m0/param_grad/fc.weight/0",
                          "s0/main_grad/fc.weight/0",
                          "s0/scalar/grad_norm/0",
                          "s0/exp_avg/fc.weight/0",
                          "s0/param_next/fc.weight/0"));
  EXPECT_SAME(captured.tensor("s0/param_next/fc.weight/0"), fc->weight.detach());
  EXPECT_EQ(captured.tensor("s0/scalar/grad_norm/0").item<double>(), 2.5);
}

TEST(Capture, StridedTensorsAreStoredContiguously) {
  Holder root;
  const at::Tensor wide = random_tensor({4, 6});
  const Captured captured = trace_microbatch(root, [&] {
    Scope scope(root, "core");
    static_cast<void>(scope.out(wide.t().slice(0, 1, 6, 2)));
  });
  EXPECT_SAME(captured.tensor("s0/m0/output/core/0"), wide.t().slice(0, 1, 6, 2));
}

TEST(Capture, WhatATraceCannotHoldBecomesANote) {
  Holder root;
  const Captured captured = trace_microbatch(root, [&] {
    Scope scope(root, "core");
    static_cast<void>(scope.out(at::zeros({2}, at::kComplexFloat), 0));
    static_cast<void>(scope.out(at::zeros({2}).to_sparse(), 1));
    static_cast<void>(scope.out(at::ones({2}, at::kLong), 2));
  });
  EXPECT_THAT(captured.ids_with("/m0/"), ElementsAre("s0/m0/output/core/2"));
  EXPECT_THAT(captured.notes(),
              ElementsAre(HasSubstr("output/core/0 has an element type"),
                          HasSubstr("output/core/1 has no dense storage")));
}

TEST(Capture, EmptyTensorsAndScalarsAreRecorded) {
  Holder root;
  const Captured captured = trace_microbatch(root, [&] {
    Scope scope(root, "core");
    static_cast<void>(scope.out(at::zeros({0, 3}), 0));
    static_cast<void>(scope.out(at::full({}, 2.5F), 1));
  });
  EXPECT_EQ(captured.record("s0/m0/output/core/0").shape, std::vector<std::int64_t>({0, 3}));
  EXPECT_EQ(captured.tensor("s0/m0/output/core/1").item<float>(), 2.5F);
}

TEST(Capture, FilterKeepsMatchingIdsOnly) {
  Holder root;
  auto fc = root.add("fc", torch::nn::Linear(4, 4));
  fill_all(root);
  const Captured captured = trace_step(root,
                                       [&](Step& step) {
                                         const auto microbatch = step.microbatch(0);
                                         fc->forward(random_tensor({2, 4})).sum().backward();
                                       },
                                       {},
                                       {{"TTRACE_FILTER", "^s0/m0/grad_output"}});
  EXPECT_THAT(captured.ids(), ElementsAre("s0/m0/grad_output/fc/0"));
  EXPECT_THAT(captured.notes(), IsEmpty());
}

TEST(Capture, RecordsCarryPlacementAndGradientScale) {
  Holder root;
  auto fc = root.add("fc", torch::nn::Linear(4, 6));
  fill_all(root);
  const testing::TemporaryDirectory directory;
  const testing::PassEnvironment environment(testing::candidate_pass(directory.path(), "unused"));
  const Layout layout = Layout{1, 2, {}}.add("tp", 2, 1);
  const Annotations annotations = Annotations::parse(R"(
tensors:
  - path: fc
    value: "b h[tp]"
  - path: fc.weight
    value: "h[tp] k"
  - path: fc.bias
    value: "h[tp]"
)");
  {
    auto session = Session::from_environment();
    session.attach(root, layout, annotations);
    auto step = session.step(0);
    const auto microbatch = step.microbatch(5, {.gradient_scale = 0.5});
    fc->forward(random_tensor({2, 4})).sum().backward();
  }
  const Captured captured(directory / "step000000/rank00001.h5");
  const Placement output = captured.record("s0/m5/output/fc/0").placement;
  EXPECT_EQ(to_string(output), "2 12/6:0+6+6");
  EXPECT_EQ(output.scale, 1.0);
  EXPECT_EQ(captured.record("s0/m5/grad_output/fc/0").placement.scale, 0.5);
  EXPECT_EQ(captured.record("s0/m5/param_grad/fc.weight/0").placement.scale, 0.5);
  EXPECT_EQ(to_string(captured.record("s0/param/fc.weight/0").placement), "12/6:0+6+6 4");
}

}  // namespace
}  // namespace ttrace
