// Steps in which a stream records a graph (a CUDA graph).
#include "fake_device/fixture.h"
#include "hooks/base/cuda_functions.h"
#include "hooks/training.h"

#include <c10/core/StreamGuard.h>
#include <gmock/gmock.h>

#include <thread>

namespace ttrace::testing {
namespace {

using fake::FakeDeviceTest;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct GraphedModel : Holder {
  GraphedModel() {
    fill_all(*this);
    for (const at::Tensor& parameter : parameters()) {
      fake::move_to(parameter, fake::device());
    }
  }
  at::Tensor block(const at::Tensor& x) {
    Scope scope(*this, "block");
    return scope.out(fc1->forward(scope.in(x)).tanh());
  }

  torch::nn::Linear fc1 = add("fc1", torch::nn::Linear(6, 6));
  torch::nn::Linear fc2 = add("fc2", torch::nn::Linear(6, 3));
};

// Records the model's block into a graph while the work of before is still pending, runs the graph
// and trains the other part. Returns what was recorded into the graph.
fake::Graph run_with_graph(GraphedModel& model, Microbatch* microbatch) {
  const at::Tensor x = random_tensor({4, 6}).to(fake::device());
  const fake::SignalRef gate =
      fake::post_gate(fake::default_stream(), "start", fake::Opener::kOtherThread);
  if (microbatch != nullptr) {
    for (int number = 0; number < 20; ++number) {
      microbatch->data("x", x + number);
    }
  }
  const c10::Stream side = fake::new_stream();
  at::Tensor y;
  fake::begin_capture(side);
  {
    const c10::StreamGuard guard(side);
    const at::NoGradGuard no_grad;
    y = model.block(x);
    if (microbatch != nullptr) {
      microbatch->data("inside", y);
    }
  }
  // The writer waits for copies of before while the graph is recorded.
  const std::size_t waits = fake::counters().event_waits;
  fake::open(gate);
  while (microbatch != nullptr && fake::counters().event_waits < waits + 1) {
    std::this_thread::yield();
  }
  fake::Graph graph = fake::end_capture(side);
  fake::replay(graph, fake::default_stream());
  const at::Tensor loss = model.fc2->forward(y).square();
  if (microbatch != nullptr) {
    microbatch->loss(loss);
  }
  loss.sum().backward();
  return graph;
}

// Symptom: a hook waited for the stream while it recorded a graph. That made the recording invalid,
// and training ended with an error.
TEST_F(FakeDeviceTest, ARecordedGraphHoldsNothingOfTheTraceAndOneNoteSaysSo) {
  GraphedModel untraced;
  const fake::Graph plain = run_with_graph(untraced, nullptr);
  const at::Tensor expected = untraced.fc2->weight.grad().to(at::kCPU);
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    fake::reset(seed);
    GraphedModel model;
    fake::Graph graph;
    const Captured captured =
        trace_step(model,
                   [&](Step& step) {
                     auto microbatch = step.microbatch(0);
                     graph = run_with_graph(model, &microbatch);
                   },
                   {},
                   {{"TTRACE_RING_BYTES", "20000"}, {"TTRACE_ON_ERROR", "raise"}});
    EXPECT_EQ(graph->size(), plain->size());
    EXPECT_THAT(captured.notes(),
                ElementsAre(AllOf(HasSubstr("CUDA graph"), HasSubstr("turn graphs off"))));
    EXPECT_FALSE(captured.has("s0/m0/output/block/0"));
    EXPECT_FALSE(captured.has("s0/m0/data/inside/0"));
    EXPECT_SAME(captured.tensor("s0/m0/data/x/0#19"), random_tensor({4, 6}) + 19);
    EXPECT_SAME(captured.tensor("s0/m0/param_grad/fc2.weight/0"), expected);
    EXPECT_SAME(model.fc2->weight.grad().to(at::kCPU), expected);
  }
}

// Symptom: with torch before 2.13 nobody told the raw stream, nor whether it records a graph. Noise
// and comparisons of CUDA tensors went through the host, and a hook broke the recording.
TEST_F(FakeDeviceTest, TheRawStreamAndItsRecordingAreFoundByTheNamesOfCudasFunctions) {
  EXPECT_EQ(current_cuda_stream(0), std::optional<void*>(nullptr));
  EXPECT_EQ(current_cuda_stream(fake::kDevices), std::nullopt);
  EXPECT_FALSE(current_cuda_stream_records(0));
  const c10::Stream side = fake::new_stream();
  fake::begin_capture(side);
  EXPECT_FALSE(current_cuda_stream_records(0));
  {
    const c10::StreamGuard guard(side);
    EXPECT_EQ(current_cuda_stream(0), std::optional(reinterpret_cast<void*>(side.id())));
    EXPECT_TRUE(current_cuda_stream_records(0));
    EXPECT_FALSE(current_cuda_stream_records(1));
  }
  EXPECT_EQ(fake::end_capture(side)->size(), 0);
}

}  // namespace
}  // namespace ttrace::testing
