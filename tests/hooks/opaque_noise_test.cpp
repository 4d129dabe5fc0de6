// Noise passes: values that no dispatched operator made, and operators that return nothing.
#include "hooks/training.h"
#include "trace/file/noise_table.h"

#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_fused_adamw.h>
#include <gmock/gmock.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <algorithm>
#include <filesystem>

namespace ttrace {
namespace {

using testing::fill_all;
using testing::Holder;
using testing::noise_pass;
using testing::PassEnvironment;
using testing::random_tensor;
using testing::reference_pass;
using testing::TemporaryDirectory;
using testing::units;

// Writes `x` times 3 where no dispatcher sees it.
void triple(const at::Tensor& x, const at::Tensor& result) {
  const at::Tensor values = x.contiguous();
  const auto* const from = values.const_data_ptr<float>();
  std::transform(from, from + values.numel(), result.mutable_data_ptr<float>(), [](float value) {
    return 3.0F * value;
  });
}

// The same in memory that an operator has allocated.
at::Tensor allocated(const at::Tensor& x) {
  at::Tensor result = at::empty(x.sizes());
  triple(x, result);
  return result;
}

// The same in zeros.
at::Tensor in_zeros(const at::Tensor& x) {
  at::Tensor result = at::zeros(x.sizes());
  triple(x, result);
  return result;
}

// The same in memory that torch has not allocated.
at::Tensor foreign(const at::Tensor& x) {
  auto* const memory = new float[static_cast<std::size_t>(x.numel())];
  at::Tensor result = at::from_blob(
      memory,
      x.sizes(),
      [memory](void*) { delete[] memory; },
      at::TensorOptions().dtype(at::kFloat));
  triple(x, result);
  return result;
}

struct Triple : torch::autograd::Function<Triple> {
  static at::Tensor forward(torch::autograd::AutogradContext* context,
                            const at::Tensor& x,
                            const at::Tensor& weight) {
    context->save_for_backward({weight});
    return allocated(x.detach());
  }
  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext* context,
                                               const torch::autograd::tensor_list& gradients) {
    const at::Tensor weight = context->get_saved_variables()[0];
    return {allocated(gradients[0]), foreign(weight.detach())};
  }
};

std::int64_t largest_move(const at::Tensor& moved) {
  return moved.max().item<std::int64_t>();
}

double mean_move(const at::Tensor& moved) {
  return moved.to(at::kDouble).mean().item<double>();
}

class OpaqueNoise : public ::testing::Test {
 protected:
  OpaqueNoise() {
    fill_all(root_);
    root_.register_buffer("table", table_);
  }

  void run(const testing::Variables& variables, const std::function<void(Step&)>& body) {
    const PassEnvironment environment(variables);
    auto session = Session::from_environment();
    session.attach(root_, Layout(), Annotations());
    auto step = session.step(0);
    body(step);
  }
  void perturbed(const std::function<void()>& body) {
    if (!std::filesystem::exists(trace_ / "manifest.json")) {
      run(reference_pass(trace_.path()), [](Step&) {});
    }
    run(noise_pass(trace_.path(), 1), [&](Step& step) {
      const auto microbatch = step.microbatch(0);
      body();
    });
  }
  // What a module makes of what it takes.
  at::Tensor module(const std::string& child,
                    const at::Tensor& x,
                    const std::function<at::Tensor(const at::Tensor&)>& forward) {
    Scope scope(root_, child);
    return scope.out(forward(scope.in(x)));
  }

  at::Tensor table_ = random_tensor({40, 50}, 3);
  Holder root_;
  torch::nn::Linear fc_ = root_.add("fc", torch::nn::Linear(6, 6));
  TemporaryDirectory trace_;
};

const std::function<at::Tensor(const at::Tensor&)> kKernels[] = {allocated, in_zeros, foreign};

// Noise passes of layers whose kernels torch does not dispatch were all equal.
TEST_F(OpaqueNoise, WhatAKernelMadeThatNobodySeesIsRoundedOnce) {
  const at::Tensor x = random_tensor({200, 100});
  for (const auto& kernel : kKernels) {
    at::Tensor made;
    at::Tensor y;
    perturbed([&] {
      y = module("core", x, [&](const at::Tensor& input) { return made = kernel(input); });
    });
    const at::Tensor right = allocated(x);
    EXPECT_EQ(largest_move(units(y, right)), 1);
    EXPECT_NEAR(mean_move(units(y, right)), 0.25, 0.015);
    EXPECT_SAME(made, right);  // the kernel's memory may be anybody's
  }
}

TEST_F(OpaqueNoise, AModuleWithAMatrixEndsInASumOfProducts) {
  const at::Tensor x = random_tensor({300, 50});
  at::Tensor y;
  perturbed([&] { y = module("fc", x, foreign); });
  EXPECT_EQ(largest_move(units(y, allocated(x))), 6);
}

TEST_F(OpaqueNoise, DataThatOperatorsMoveBehindAKernelAreMovedAtTheModulesEnd) {
  const at::Tensor x = random_tensor({40, 50});
  const at::Tensor right = allocated(x);
  const auto moved = [&](const std::function<at::Tensor(const at::Tensor&)>& forward,
                         const at::Tensor& expected) {
    at::Tensor y;
    perturbed([&] { y = module("core", x, forward); });
    return mean_move(units(y, expected));
  };
  for (const auto& kernel : kKernels) {
    EXPECT_GT(moved([&](const at::Tensor& in) { return kernel(in).t().contiguous(); }, right.t()),
              0.2);
    EXPECT_GT(moved(
                  [&](const at::Tensor& in) {
                    return at::cat({in, kernel(in)});
                  },
                  at::cat({x, right})),
              0.2);
    EXPECT_GT(moved([&](const at::Tensor& in) { return kernel(in).view({-1}); }, right.view({-1})),
              0.2);
    EXPECT_GT(moved([&](const at::Tensor& in) { return kernel(in).neg_(); }, right.neg()), 0.2);
  }
}

TEST_F(OpaqueNoise, WhatOperatorsRoundBehindAKernelIsNotMovedAgain) {
  const at::Tensor x = random_tensor({200, 100});
  at::Tensor y;
  perturbed([&] {
    y = module("core", x, [](const at::Tensor& input) { return allocated(input).mul(1); });
  });
  EXPECT_EQ(largest_move(units(y, allocated(x))), 1);
  EXPECT_NEAR(mean_move(units(y, allocated(x))), 0.25, 0.015);
}

TEST_F(OpaqueNoise, WhatAModuleOnlyHandsOnIsLeftAlone) {
  const at::Tensor x = random_tensor({40, 50});
  const at::Tensor rows = at::arange(40);
  const std::function<at::Tensor(const at::Tensor&)> forwards[] = {
      [](const at::Tensor& in) { return in; },
      [](const at::Tensor& in) { return at::dropout(in, 0.5, false); },
      [](const at::Tensor& in) { return in.t().contiguous().t(); },
      [&](const at::Tensor& in) { return in.index_select(0, rows); },
      [](const at::Tensor& in) { return in.narrow(0, 0, 40); },
      [](const at::Tensor& in) { return at::empty_like(in).copy_(in); },
      [](const at::Tensor& in) {
        at::Tensor target = at::empty_like(in);
        target.narrow(0, 0, 20).copy_(in.narrow(0, 0, 20));
        target.narrow(0, 20, 20).copy_(in.narrow(0, 20, 20));
        return target;
      },
      [](const at::Tensor& in) {
        return at::cat({at::zeros_like(in), in}).narrow(0, 40, 40);
      },
      [](const at::Tensor& in) { return in.clone().relu_() - in.neg().relu_(); },
  };
  for (const auto& forward : forwards) {
    perturbed([&] {
      const at::Tensor y = module("core", x, forward);
      const bool rounds = &forward == &forwards[8];
      EXPECT_EQ(largest_move(units(y, x)), rounds ? 1 : 0);
      EXPECT_TRUE(&forward != &forwards[0] || y.is_same(x));
    });
  }
}

TEST_F(OpaqueNoise, ParametersBuffersAndConstantsAreLeftAlone) {
  const at::Tensor x = random_tensor({40, 50});
  perturbed([&] {
    EXPECT_SAME(module("core", x, [&](const at::Tensor&) { return fc_->weight; }), fc_->weight);
    EXPECT_SAME(module("core", x, [&](const at::Tensor&) { return table_.narrow(0, 0, 9); }),
                table_.narrow(0, 0, 9));
    EXPECT_SAME(module("core", x, [&](const at::Tensor&) { return table_.t().contiguous(); }),
                table_.t());
    EXPECT_SAME(module("core", x, [](const at::Tensor&) { return at::full({9}, 0.1F); }),
                at::full({9}, 0.1F));
    EXPECT_SAME(module("core", x, [](const at::Tensor&) { return at::zeros({9}); }),
                at::zeros({9}));
  });
}

TEST_F(OpaqueNoise, AContainerIsCoveredByItsChildren) {
  const at::Tensor x = random_tensor({40, 50});
  perturbed([&] {
    at::Tensor inner;
    const at::Tensor outer = module("block", x, [&](const at::Tensor& input) {
      return inner = module("block.core", input, foreign);
    });
    EXPECT_TRUE(outer.is_same(inner));
    EXPECT_GT(mean_move(units(inner, allocated(x))), 0.2);
  });
}

TEST_F(OpaqueNoise, GradientsThatAKernelMadeAreMovedWhereTheyArrive) {
  const at::Tensor x = random_tensor({100, 6}).requires_grad_();
  perturbed([&] {
    const at::Tensor y =
        module("fc", x, [&](const at::Tensor& input) { return Triple::apply(input, fc_->weight); });
    y.backward(at::ones({100, 6}));
  });
  EXPECT_GT(mean_move(units(x.grad(), at::full({100, 6}, 3.0F))), 1.0);
  EXPECT_GT(mean_move(units(fc_->weight.grad(), allocated(fc_->weight.detach()))), 1.0);
  fc_->weight.mutable_grad().reset();
}

TEST_F(OpaqueNoise, TheTableTellsWhatNoNoiseReached) {
  const auto train = [&](Step& step) {
    auto microbatch = step.microbatch(0);
    const at::Tensor x = random_tensor({8, 6});
    microbatch.data("samples", x);
    const at::Tensor looked_up = module(
        "lookup", x, [](const at::Tensor& input) { return input.index_select(0, at::arange(8)); });
    const at::Tensor y = module("core", looked_up, foreign);
    microbatch.loss(allocated(x));
    step.gradients_reduced({{"fc.weight", in_zeros(fc_->weight.detach()), std::nullopt},
                            {"fc.bias", fc_->bias.detach().mul(2), std::nullopt}});
  };
  run(reference_pass(trace_.path()), train);
  run(noise_pass(trace_.path(), 1), train);
  std::map<std::string, bool> covered;
  const std::vector<NoisePass> passes = read_noise(trace_.path());
  for (const NoiseRow& row : passes.at(0).rows) {
    ASSERT_TRUE(row.covered.has_value());
    covered[to_string(row.id)] = *row.covered;
    if (!*row.covered) {
      EXPECT_EQ(row.sum_squared, 0.0) << to_string(row.id);
    }
  }
  EXPECT_TRUE(covered.at("s0/param/fc.weight/0"));
  EXPECT_TRUE(covered.at("s0/m0/output/lookup/0"));
  EXPECT_TRUE(covered.at("s0/m0/output/core/0"));
  EXPECT_TRUE(covered.at("s0/main_grad/fc.bias/0"));
  EXPECT_FALSE(covered.at("s0/m0/loss/loss/0"));
  EXPECT_FALSE(covered.at("s0/main_grad/fc.weight/0"));
}

// --- operators that return nothing ---------------------------------------------------------------

TORCH_LIBRARY_FRAGMENT(ttrace_test, library) {
  library.def("triple_all_(Tensor(a!)[] tensors, Tensor[] others) -> ()");
  library.impl("triple_all_",
               c10::DispatchKey::CompositeExplicitAutograd,
               [](std::vector<at::Tensor> tensors, const std::vector<at::Tensor>&) {
                 for (at::Tensor& tensor : tensors) {
                   triple(tensor, tensor);
                 }
               });
}

TEST_F(OpaqueNoise, ListsThatAnOperatorChangesAreMovedOnce) {
  const at::Tensor flat = random_tensor({2, 60, 50});
  const at::Tensor right = allocated(flat);
  const at::Tensor other = random_tensor({60, 50}, 5);
  const at::Tensor kept = other.clone();
  const at::Tensor sum = random_tensor({60, 50}, 6);
  const at::Tensor expected = sum + kept;
  perturbed([&] {
    static const auto triple_all =
        c10::Dispatcher::singleton()
            .findSchemaOrThrow("ttrace_test::triple_all_", "")
            .typed<void(std::vector<at::Tensor>, const std::vector<at::Tensor>&)>();
    triple_all.call({flat[0], flat[1]}, {other});                       // views of one memory
    at::_foreach_add_(at::TensorList({sum}), at::TensorList({other}));  // a loop of operators here
  });
  EXPECT_EQ(largest_move(units(flat, right)), 1);
  EXPECT_NEAR(mean_move(units(flat[0], right[0])), 0.25, 0.04);
  EXPECT_NEAR(mean_move(units(flat[1], right[1])), 0.25, 0.04);
  EXPECT_EQ(largest_move(units(sum, expected)), 1);
  EXPECT_SAME(other, kept);
}

TEST_F(OpaqueNoise, AFusedOptimizerMovesWhatItUpdatesAndNoGradient) {
  const at::Tensor start = random_tensor({60, 50});
  const at::Tensor gradient = random_tensor({60, 50}, 5);
  const auto update = [&] {
    std::vector<at::Tensor> all = {start.clone(),
                                   gradient.clone(),
                                   at::zeros_like(start),
                                   at::zeros_like(start),
                                   at::ones({})};
    at::_fused_adamw_({all[0]},
                      {all[1]},
                      {all[2]},
                      {all[3]},
                      {},
                      {all[4]},
                      0.01,
                      0.9,
                      0.99,
                      0.1,
                      1e-8,
                      false,
                      false);
    return all;
  };
  const std::vector<at::Tensor> right = update();
  std::vector<at::Tensor> moved;
  perturbed([&] { moved = update(); });
  for (const std::size_t updated : {0U, 2U, 3U}) {
    EXPECT_EQ(largest_move(units(moved[updated], right[updated])), 1) << updated;
    EXPECT_NEAR(mean_move(units(moved[updated], right[updated])), 0.25, 0.04) << updated;
  }
  EXPECT_SAME(moved[1], gradient);
}

}  // namespace
}  // namespace ttrace
