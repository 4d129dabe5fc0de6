// Messages between pipeline stages on real ranks; every rank is a stage.
#include "transfers.h"

#include "error.h"
#include "main_gradients.h"
#include "ranks.h"

#include <ttrace/session.h>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

namespace {

using megatron_mini::Direction;
using megatron_mini::InternalError;
using megatron_mini::LayerRange;
using megatron_mini::MainGradients;
using megatron_mini::Parallel;
using megatron_mini::schedule_of;
using megatron_mini::Task;
using megatron_mini::Transfers;
using megatron_mini::testing::runtime;
using megatron_mini::testing::world;

constexpr int kChunks = 2;

Parallel stages() {
  Parallel parallel{.world = world(), .tp = {}, .dp = {}};
  parallel.pp = world();
  parallel.chunks = kChunks;
  return parallel;
}

// The tensor that virtual stage `place` sends for a micro-batch: its output, or its input's
// gradient.
at::Tensor value(std::int64_t place, std::int64_t microbatch, bool is_gradient) {
  return at::full({2, 3},
                  100.0 * static_cast<double>(place) + 10.0 * (is_gradient ? 1.0 : 0.0) +
                      static_cast<double>(microbatch));
}

// Every rank runs its schedule on made-up tensors.
TEST(Transfers, EveryMessageOfAScheduleArrivesAtTheTaskThatNeedsIt) {
  const Parallel parallel = stages();
  const std::int64_t microbatches = 3 * std::int64_t{world().size};
  auto session = ttrace::Session::from_environment();  // inert
  auto step = session.step(0);
  auto traced = step.microbatch(0);
  const std::vector<LayerRange> layers = {{world().rank, 1}, {world().size + world().rank, 1}};
  Transfers transfers(parallel, layers, microbatches, {2, 3}, at::kFloat);
  for (const Task& task : schedule_of({world().rank, world().size, kChunks}, microbatches)) {
    const int chunk = task.chunk;
    const std::int64_t i = task.microbatch;
    const std::int64_t place = std::int64_t{chunk} * world().size + world().rank;
    if (task.direction == Direction::kForward) {
      if (!parallel.begins(chunk)) {
        const at::Tensor input = transfers.receive_activation(chunk, {i, traced});
        EXPECT_TRUE(input.equal(value(place - 1, i, false))) << input;
        EXPECT_TRUE(input.requires_grad());
      }
      if (!parallel.ends(chunk)) {
        transfers.send_activation(chunk, {i, traced}, value(place, i, false));
      }
      continue;
    }
    if (!parallel.ends(chunk)) {
      const at::Tensor gradient = transfers.receive_gradient(chunk, {i, traced});
      EXPECT_TRUE(gradient.equal(value(place + 1, i, true))) << gradient;
    }
    if (!parallel.begins(chunk)) {
      transfers.send_gradient(chunk, {i, traced}, value(place, i, true));
    }
  }
  transfers.finish();
}

TEST(Transfers, RefusesAMessageThatIsNotDue) {
  Parallel parallel = stages();
  parallel.chunks = 1;
  auto session = ttrace::Session::from_environment();  // inert
  auto step = session.step(0);
  auto traced = step.microbatch(0);
  Transfers transfers(parallel, {{world().rank, 1}}, 1, {2, 3}, at::kFloat);
  if (parallel.is_first_stage()) {  // the others would post what they receive first
    EXPECT_THROW(transfers.send_activation(0, {7, traced}, value(0, 7, false)), InternalError);
  }
}

// First and last rank hold the tied weight, each with an addend of its gradient.
TEST(MainGradients, TiedWeightIsSummedOverItsStagesAndCountedOnce) {
  const int last = world().size - 1;
  const bool has_tied = world().rank == 0 || world().rank == last;
  Parallel parallel = stages();
  parallel.tp = runtime().split("transfers_tp", world().rank);
  parallel.dp_cp = runtime().split("transfers_dp_cp", world().rank);
  parallel.embedding = runtime().split("transfers_embedding", has_tied ? 0 : world().rank);

  const at::Tensor own = at::ones({1}).requires_grad_(true);
  std::vector<megatron_mini::ModelParameter> parameters = {{.path = "own", .tensor = own}};
  at::Tensor tied = at::ones({1}).requires_grad_(true);
  if (has_tied) {
    const megatron_mini::ModelParameter copy = {.path = "embedding.word_embeddings.weight",
                                                .tensor = tied,
                                                .is_second_copy = world().rank == last};
    parameters.push_back(copy);
  }
  MainGradients gradients(parameters, parallel);
  (own * 2.0 + tied * (world().rank == 0 ? 3.0 : 4.0)).sum().backward();
  gradients.accumulate(0);
  gradients.reduce(megatron_mini::Loss::kMean);
  if (has_tied) {
    EXPECT_EQ(gradients.reduced()[1].item<double>(), 7.0);
  }
  EXPECT_DOUBLE_EQ(gradients.norm(), std::sqrt(4.0 * world().size + 49.0));
}

}  // namespace
