// Collectives as records: their names and contents, and cases without any.
#include "hooks/training.h"

#include <ttrace/collective.h>

#include <ATen/core/dispatch/Dispatcher.h>
#include <gmock/gmock.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <torch/nn/modules/linear.h>

namespace ttrace {
namespace {

using testing::Captured;
using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using testing::fill_all;
using testing::Holder;
using ::testing::IsEmpty;
using testing::random_tensor;
using testing::trace_step;
using testing::Variables;

const Variables kOn{{"TTRACE_COLLECTIVES", "1"}};

CollectiveCall sum_in(const std::string& group) {
  return {.operation = CollectiveOperation::kAllReduce, .group = group, .rank = 1, .size = 2};
}

// Stands for a sum over two equal ranks.
at::Tensor summed(const CollectiveCall& call, at::Tensor tensor) {
  Collective report(call, tensor);
  tensor.mul_(2);
  report.finished(tensor);
  return tensor;
}

CollectiveCall call_in(const Captured& captured, const std::string& id) {
  const at::Tensor bytes = captured.tensor(id);
  return parse_collective_call(
      {static_cast<const char*>(bytes.const_data_ptr()), static_cast<std::size_t>(bytes.numel())});
}

TEST(Collectives, AreNumberedByGroupAndKeepInputAndOutput) {
  Holder root;
  const at::Tensor x = random_tensor({3, 2});
  const Captured captured = trace_step(
      root,
      [&](Step& step) {
        const auto microbatch = step.microbatch(0);
        Scope scope(root, "mlp");
        summed(sum_in("tp-0"), x.clone());
        summed(sum_in("dp-0"), x.clone());
        summed(sum_in("tp-0"), x + 1);
      },
      {},
      kOn);
  EXPECT_THAT(captured.ids_with("/collective_output/"),
              ElementsAre("s0/collective_output/tp-0.0/0",
                          "s0/collective_output/dp-0.0/0",
                          "s0/collective_output/tp-0.1/0"));
  EXPECT_SAME(captured.tensor("s0/collective_input/tp-0.1/0"), x + 1);
  EXPECT_SAME(captured.tensor("s0/collective_output/tp-0.1/0"), (x + 1) * 2);
  const CollectiveCall call = call_in(captured, "s0/collective_input/tp-0.1/1");
  EXPECT_EQ(call.module, "mlp");
  EXPECT_EQ(call.rank, 1);
  EXPECT_EQ(call.size, 2);
}

TEST(Collectives, ATraceKnowsTheLinesOfScopesAndOfCalls) {
  Holder root;
  int scope_line = 0;
  int call_line = 0;
  const Captured captured = trace_step(
      root,
      [&](Step& step) {
        const auto microbatch = step.microbatch(0);
        scope_line = __LINE__ + 1;
        Scope scope(root, "mlp");
        call_line = __LINE__ + 1;
        Collective report(sum_in("tp-0"), random_tensor({6}));
        report.finished(random_tensor({6}));
      },
      {},
      kOn);
  const std::string file = "collective_test.cpp:";
  EXPECT_THAT(captured.code().source_of("mlp"), EndsWith(file + std::to_string(scope_line)));
  EXPECT_THAT(captured.code().call_of("tp-0.0"), EndsWith(file + std::to_string(call_line)));
}

TEST(Collectives, SumsGoIntoTheOutputOfTheirScope) {
  Holder root;
  const Captured captured = trace_step(root, [&](Step& step) {
    const auto microbatch = step.microbatch(0);
    Scope scope(root, "mlp");
    static_cast<void>(scope.out(summed(sum_in("tp-0"), random_tensor({6}))));
  });
  EXPECT_THAT(captured.ids_of_sums(), ElementsAre("s0/m0/output/mlp/0"));
}

// Symptom: a loss multiplied by 1.003 on all ranks was within bound at its gradient, which was
// granted the roundings of what the loss function had summed over the vocabulary's shards.
TEST(Collectives, SumsOfALossFunctionAreNoRoundingsOfItsGradient) {
  Holder root;
  const Captured captured = trace_step(root, [&](Step& step) {
    auto microbatch = step.microbatch(0);
    const at::Tensor x = random_tensor({6}).requires_grad_();
    const at::Tensor sums = summed(sum_in("tp-0"), x.detach().exp());
    const at::Tensor loss = sums.log() - x;
    microbatch.loss(loss);
    loss.sum().backward();
  });
  ASSERT_TRUE(captured.has("s0/m0/grad_output/loss/0"));
  EXPECT_THAT(captured.ids_of_sums(), IsEmpty());
}

class Done : public c10d::Work {
 public:
  bool wait(std::chrono::milliseconds /*timeout*/) override { return true; }
};

// Ranks that all have the same values.
class EqualRanks : public c10d::Backend {
 public:
  using Backend::Backend;
  [[nodiscard]] const std::string getBackendName() const override { return "equal"; }
  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors,
                                           const c10d::AllreduceOptions& options) override {
    for (at::Tensor& tensor : tensors) {
      tensor.mul_(sum_of_ones(options.reduceOp));
    }
    return c10::make_intrusive<Done>();
  }
  c10::intrusive_ptr<c10d::Work> _reduce_scatter_base(
      at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& options) override {
    output.copy_(input.chunk(getSize()).at(getRank())).mul_(sum_of_ones(options.reduceOp));
    return c10::make_intrusive<Done>();
  }

 private:
  [[nodiscard]] int sum_of_ones(c10d::ReduceOp reduction) const {
    return reduction == c10d::ReduceOp::SUM ? getSize() : 1;
  }
};

c10::intrusive_ptr<c10d::ProcessGroup> equal_ranks(int size) {
  auto group = c10::make_intrusive<c10d::ProcessGroup>(0, size);
  group->setBackend(c10::DeviceType::CPU,
                    c10d::ProcessGroup::BackendType::CUSTOM,
                    c10::make_intrusive<EqualRanks>(0, size));
  return group;
}

at::Tensor all_reduced(at::Tensor tensor, int ranks, const c10d::ReduceOp& reduction) {
  std::vector<at::Tensor> tensors{tensor};
  c10d::AllreduceOptions options;
  options.reduceOp = reduction;
  equal_ranks(ranks)->allreduce(tensors, options)->wait();
  return tensor;
}

// Calls the operator by its name, because its method was renamed between versions of torch.
void reduce_scatter(const at::Tensor& output, const at::Tensor& input, int ranks) {
  std::vector<c10::IValue> stack{output,
                                 input,
                                 equal_ranks(ranks),
                                 c10::make_intrusive<c10d::ReduceOp>(c10d::ReduceOp::SUM),
                                 false,
                                 -1};
  c10::Dispatcher::singleton()
      .findSchemaOrThrow("c10d::_reduce_scatter_base_", "")
      .callBoxed(&stack);
}

// Symptom: a clean Python run over four tensor-parallel ranks alarmed in BF16, R 2.03: nobody had
// reported its sums over ranks, so that their roundings were part of no allowance.
TEST(Collectives, SumsOfC10dAreSeenWithoutAReport) {
  Holder root;
  const at::Tensor x = random_tensor({8, 2});
  const Captured captured = trace_step(root, [&](Step& step) {
    const auto microbatch = step.microbatch(0);
    {
      Scope scope(root, "proj");
      static_cast<void>(scope.out(all_reduced(x.clone(), 4, c10d::ReduceOp::SUM)));
    }
    Scope scope(root, "fc2");
    const at::Tensor part = at::empty({2, 2});
    reduce_scatter(part, x, 4);
    static_cast<void>(scope.out(part));
  });
  const std::vector<RoundedSum> sums = captured.sums();
  ASSERT_EQ(sums.size(), 2U);
  EXPECT_EQ(to_string(sums[0].id), "s0/m0/output/proj/0");
  EXPECT_EQ(sums[0].addends, 4);
  EXPECT_EQ(sums[0].type, ElementType::kF32);
  EXPECT_NEAR(sums[0].squared.value(), x.square().sum().item<double>(), 1e-4);
  EXPECT_THAT(sums[0].by_column,
              ElementsAre(DoubleNear(x.select(1, 0).square().sum().item<double>(), 1e-4),
                          DoubleNear(x.select(1, 1).square().sum().item<double>(), 1e-4)));
  EXPECT_EQ(to_string(sums[1].id), "s0/m0/output/fc2/0") << "a quarter of its input's elements";
}

// Symptom: clean BF16 runs of examples/dtensor over four tensor-parallel ranks alarmed: a row of an
// attention's output, which is that of its last linear, was 3.3 times its scale off. Only the
// linear's record had the sum over ranks.
TEST(Collectives, AnOutputThatIsThatOfTheModuleWithinHasItsSums) {
  Holder root;
  const Captured captured = trace_step(root, [&](Step& step) {
    const auto microbatch = step.microbatch(0);
    Scope attention(root, "attention");
    at::Tensor sum;
    {
      Scope proj(root, "attention.proj");
      sum = proj.out(all_reduced(random_tensor({6}), 4, c10d::ReduceOp::SUM));
    }
    static_cast<void>(attention.out(sum));
    static_cast<void>(attention.out(sum * 2, 1));
  });
  EXPECT_THAT(captured.ids_of_sums(),
              ElementsAre("s0/m0/output/attention.proj/0", "s0/m0/output/attention/0"));
}

TEST(Collectives, AnAverageRoundsItsAddendsDividedByTheirNumber) {
  Holder root;
  const at::Tensor x = random_tensor({6});
  const Captured captured = trace_step(root, [&](Step& step) {
    const auto microbatch = step.microbatch(0);
    Scope scope(root, "mlp");
    static_cast<void>(scope.out(all_reduced(x.clone(), 2, c10d::ReduceOp::AVG)));
  });
  ASSERT_EQ(captured.sums().size(), 1U);
  EXPECT_NEAR(captured.sums()[0].squared.value(), x.square().sum().item<double>() / 4, 1e-4);
}

// Symptom: averages of gradients that NCCL multiplies before it adds them (FSDP2 with a divisor of
// its own) were no sums, so that their roundings were part of no allowance.
TEST(Collectives, ASumOfMultipliedAddendsRoundsWhatItAddsUp) {
  Holder root;
  const at::Tensor x = random_tensor({6});
  c10d::ReduceOp quarter;
  quarter.op_ = c10d::ReduceOp::PREMUL_SUM;
  quarter.supplement_ = c10::make_intrusive<c10d::NCCLPreMulSumSupplement>(0.25);
  const Captured captured = trace_step(root, [&](Step& step) {
    const auto microbatch = step.microbatch(0);
    Scope scope(root, "mlp");
    static_cast<void>(scope.out(all_reduced(x.clone(), 2, quarter)));
  });
  ASSERT_EQ(captured.sums().size(), 1U);
  EXPECT_NEAR(captured.sums()[0].squared.value(), x.square().sum().item<double>() / 16, 1e-4);
}

// Symptom: clean runs over four tensor-parallel ranks alarmed where sums are part of a kernel
// (userbuffers of TransformerEngine), because no operator of c10d shows them.
TEST(Collectives, WhatThePlacementTellsCountsWhereNoSumIsSeen) {
  Holder root;
  const at::Tensor x = random_tensor({6}).requires_grad_();
  const Captured captured = trace_step(root, [&](Step& step) {
    auto microbatch = step.microbatch(0);
    at::Tensor y;
    {
      Scope scope(root, "fc1");
      y = scope.summed(4).in(x).clone();
    }
    {
      Scope scope(root, "fc2");
      y = scope.summed(4).out(y * 2);
      static_cast<void>(scope.out(y * 3, 1));  // no sum: summed() is about the one before
    }
    {
      Scope scope(root, "proj");
      const at::Tensor sum = all_reduced(y.detach().clone(), 4, c10d::ReduceOp::SUM);
      static_cast<void>(scope.summed(4).out(sum));
    }
    y.sum().backward();
  });
  const std::vector<RoundedSum> sums = captured.sums();
  EXPECT_THAT(captured.ids_of_sums(),
              ElementsAre("s0/m0/output/fc2/0", "s0/m0/output/proj/0", "s0/m0/grad_input/fc1/0"));
  ASSERT_EQ(sums.size(), 3U);
  EXPECT_EQ(sums[0].addends, 4);
  EXPECT_FALSE(sums[0].squared.has_value());
  EXPECT_TRUE(sums[1].squared.has_value()) << "an operator of c10d showed it";
  EXPECT_FALSE(sums[2].squared.has_value());
}

// Symptom: clean BF16 runs over four tensor-parallel ranks whose sums are part of a kernel alarmed
// in an attention's output, R 1.9: it is that of its last linear, and that alone had the sum.
TEST(Collectives, WhatThePlacementTellsCountsForTheModuleAroundAsWell) {
  Holder root;
  const Captured captured = trace_step(root, [&](Step& step) {
    const auto microbatch = step.microbatch(0);
    Scope attention(root, "attention");
    at::Tensor sum;
    {
      Scope proj(root, "attention.proj");
      sum = proj.summed(4).out(random_tensor({6}));
    }
    static_cast<void>(attention.out(sum));
    static_cast<void>(attention.out(sum * 2, 1));
  });
  EXPECT_THAT(captured.ids_of_sums(),
              ElementsAre("s0/m0/output/attention.proj/0", "s0/m0/output/attention/0"));
}

// A norm and a product in one module: the gradient of the norm's weight follows from a sum within.
Captured trace_summed_gradient(const Variables& variables) {
  Holder root;
  auto norm = root.add("norm", torch::nn::Linear(2, 2));
  return trace_step(
      root,
      [&](Step& step) {
        const auto microbatch = step.microbatch(0);
        {
          Scope scope(*norm);
          scope.summed_gradient("weight", 4);
        }
        norm->forward(at::ones({1, 2})).sum().backward();
      },
      {},
      variables);
}

TEST(Collectives, AModuleTellsOfTheSumThatAParametersGradientFollowsFrom) {
  EXPECT_THAT(trace_summed_gradient({}).ids_of_sums(),
              ElementsAre("s0/m0/param_grad/norm.weight/0"));
}

// Symptom: a filtered trace listed the sum of a gradient that it does not hold.
TEST(Collectives, AFilteredTraceListsNoSumOfAGradientThatItLeavesOut) {
  EXPECT_THAT(trace_summed_gradient({{"TTRACE_FILTER", "output"}}).ids_of_sums(), IsEmpty());
}

// A consumer of a traced output tells that the gradient of that output is a sum.
TEST(Collectives, AConsumerTellsOfTheSumInTheGradientOfAnOutput) {
  Holder root;
  const at::Tensor x = random_tensor({6}).requires_grad_();
  const Captured captured = trace_step(root, [&](Step& step) {
    auto microbatch = step.microbatch(0);
    at::Tensor y;
    {
      Scope scope(root, "norm");
      y = scope.out(x * 2);
    }
    Scope scope(root, "fc1");
    y = scope.summed(2).in(y)*3;
    y.sum().backward();
  });
  EXPECT_THAT(captured.ids_of_sums(), ElementsAre("s0/m0/grad_output/norm/0"));
}

TEST(Collectives, MaximaIntegersCodesAndGroupsOfOneRankRoundNothing) {
  Holder root;
  const Captured captured = trace_step(root, [&](Step& step) {
    const auto microbatch = step.microbatch(0);
    Scope scope(root, "mlp");
    all_reduced(at::ones({6}), 2, c10d::ReduceOp::MAX);
    all_reduced(at::ones({6}, at::kLong), 2, c10d::ReduceOp::SUM);
    const Collective codes(sum_in("tp-0"), at::ones({6}).to(at::kFloat8_e4m3fn));
    static_cast<void>(scope.out(all_reduced(at::ones({6}), 1, c10d::ReduceOp::SUM)));
  });
  EXPECT_THAT(captured.ids_of_sums(), IsEmpty());
}

TEST(Collectives, AReportedSumOfC10dIsOneSum) {
  Holder root;
  const Captured captured = trace_step(root, [&](Step& step) {
    const auto microbatch = step.microbatch(0);
    Scope scope(root, "mlp");
    const at::Tensor x = random_tensor({6});
    Collective report(sum_in("tp-0"), x);
    all_reduced(x, 2, c10d::ReduceOp::SUM);
    report.finished(x);
    all_reduced(x, 2, c10d::ReduceOp::SUM);  // a second one, that nobody has reported
    static_cast<void>(scope.out(x));
  });
  EXPECT_THAT(captured.ids_of_sums(), ElementsAre("s0/m0/output/mlp/0", "s0/m0/output/mlp/0"));
}

TEST(Collectives, AreInertUnlessAskedFor) {
  Holder root;
  const Captured captured = trace_step(root, [&](Step& step) {
    const auto microbatch = step.microbatch(0);
    summed(sum_in("tp-0"), random_tensor({2}));
  });
  EXPECT_THAT(captured.ids_with("collective"), IsEmpty());
}

TEST(Collectives, OfOneRankAndOutsideStepsAreNone) {
  Holder root;
  const Captured captured = trace_step(
      root,
      [&](Step& step) {
        const auto microbatch = step.microbatch(0);
        CollectiveCall alone = sum_in("tp-0");
        alone.rank = 0;
        alone.size = 1;
        summed(alone, random_tensor({2}));
      },
      {},
      kOn);
  EXPECT_THAT(captured.ids_with("collective"), IsEmpty());
  EXPECT_SAME(summed(sum_in("tp-0"), at::ones({2})), at::full({2}, 2.0F));
}

}  // namespace
}  // namespace ttrace
