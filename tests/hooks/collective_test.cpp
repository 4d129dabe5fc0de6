// Collectives as records: names, contents, and when there are none.
#include "hooks/training.h"

#include <ttrace/collective.h>

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
