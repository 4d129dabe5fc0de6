// What a trace costs an accelerator: copies, memory, waits.
#include "fake_device/fixture.h"
#include "hooks/training.h"

#include <ttrace/collective.h>

#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <gmock/gmock.h>

#include <map>
#include <string>
#include <vector>

namespace ttrace::testing {
namespace {

using fake::Counters;
using fake::FakeDeviceTest;
using fake::kType;

// Two linears with a scope between them, whose gradients reach every kind of hook.
struct TwoLinears : Holder {
  TwoLinears() {
    fill_all(*this);
    for (const at::Tensor& parameter : parameters()) {
      fake::move_to(parameter, fake::device());
    }
  }

  void train(Step& step, const at::Tensor& x) {
    {
      auto microbatch = step.microbatch(0);
      microbatch.data("x", x);
      at::Tensor y = fc1->forward(x);
      {
        Scope scope(*this, "core");
        y = scope.out(scope.in(y.t()).tanh().t());  // captures tensors that are not contiguous
      }
      {
        Scope scope(*this, "rows");
        Rows rows;
        rows.index = {3, 1, 0, 2};
        rows.size = 4;
        y = scope.out(scope.in(y, rows) * 2, rows);
      }
      const at::Tensor loss = fc2->forward(y).square();
      microbatch.loss(loss);
      loss.sum().backward();
    }
    std::vector<NamedTensor> gradients;
    for (const auto& item : named_parameters()) {
      gradients.push_back({item.key(), item.value().grad()});
    }
    step.gradients_reduced(gradients);
  }

  torch::nn::Linear fc1 = add("fc1", torch::nn::Linear(6, 5));
  torch::nn::Linear fc2 = add("fc2", torch::nn::Linear(5, 3));
};

// Bytes that the host reads of one traced step, and what they cost.
struct Cost {
  Counters counters;
  std::size_t records = 0;
  std::size_t bytes = 0;
};

Cost cost_of(const Variables& variables) {
  fake::reset(1);
  TwoLinears model;
  const at::Tensor x = random_tensor({4, 6}).to(fake::device());
  Counters before;
  Cost cost;
  const Captured captured = trace_step(
      model,
      [&](Step& step) {
        before = fake::counters();  // after the parameters
        model.train(step, x);
        cost.counters = fake::counters();
      },
      {},
      with(variables, "TTRACE_RING_BYTES", "20000"));
  cost.counters.device_copies -= before.device_copies;
  cost.counters.device_bytes -= before.device_bytes;
  cost.counters.read_copies -= before.read_copies;
  cost.counters.read_bytes -= before.read_bytes;
  cost.counters.stream_waits -= before.stream_waits;
  for (const std::string& id : captured.ids()) {
    if (id.find("/param/") == std::string::npos) {
      ++cost.records;
      cost.bytes += static_cast<std::size_t>(captured.tensor(id).nbytes());
    }
  }
  return cost;
}

// The step without a trace copies nothing by itself.
TEST_F(FakeDeviceTest, AStepCopiesNothingOfItsOwn) {
  TwoLinears model;
  const at::Tensor x = random_tensor({4, 6}).to(fake::device());
  const Counters before = fake::counters();
  auto session = Session::from_environment();
  auto step = session.step(0);
  model.train(step, x);
  EXPECT_EQ(fake::counters().device_copies, before.device_copies);
  EXPECT_EQ(fake::counters().read_copies, before.read_copies);
}

TEST_F(FakeDeviceTest, EveryCapturedByteIsCopiedOnceOnTheDeviceAndOnceToTheHost) {
  const Cost cost = cost_of({});
  RecordProperty("captured_bytes", static_cast<int>(cost.bytes));
  EXPECT_GT(cost.records, 20U);
  EXPECT_EQ(cost.counters.device_copies, cost.records);
  EXPECT_EQ(cost.counters.read_copies, cost.records);
  EXPECT_EQ(cost.counters.device_bytes, cost.bytes);
  EXPECT_EQ(cost.counters.read_bytes, cost.bytes);
  EXPECT_EQ(cost.counters.stream_waits, 0U) << "the host waits for events alone";
  EXPECT_EQ(cost.counters.device_waits, 0U);
  EXPECT_EQ(cost.counters.other_waits, 0U);
}

// Symptom: with a filter, gradients, outputs of leaf modules and rows were copied and then dropped.
TEST_F(FakeDeviceTest, AFilterKeepsEverythingElseFromBeingCopied) {
  for (const std::string filter : {"/output/fc1/",
                                   "grad_output/fc2/",
                                   "/output/core/",
                                   "/output/rows/",
                                   "grad_output/rows/",
                                   "param_grad/fc1.weight",
                                   "main_grad/fc2.bias",
                                   "nothing"}) {
    SCOPED_TRACE(filter);
    const Cost cost = cost_of({{"TTRACE_FILTER", filter}});
    EXPECT_EQ(cost.records, filter == "nothing" ? 0U : 1U);
    EXPECT_EQ(cost.counters.device_bytes, cost.bytes);
    EXPECT_EQ(cost.counters.read_bytes, cost.bytes);
    EXPECT_EQ(cost.counters.read_copies, cost.records);
  }
}

TEST_F(FakeDeviceTest, CountingCopiesNothing) {
  const TemporaryDirectory directory;
  const PassEnvironment environment(with(reference_pass(directory.path()), "TTRACE_COUNT", "1"));
  TwoLinears model;
  const at::Tensor x = random_tensor({4, 6}).to(fake::device());
  auto session = Session::from_environment();
  session.attach(model, Layout(), Annotations());
  const Counters before = fake::counters();
  {
    auto step = session.step(0);
    model.train(step, x);
  }
  EXPECT_EQ(fake::counters().device_copies, before.device_copies);
  EXPECT_EQ(fake::counters().read_copies, before.read_copies);
}

// ---- sums over ranks ----

// Symptom: every sum over ranks made the host wait for the norm of its addend, which ended the
// overlap of gradient reduction with backward.
TEST_F(FakeDeviceTest, SquaresOfSumsOverRanksAreReadWithoutAWait) {
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    fake::reset(seed);
    const at::Tensor x = random_tensor({60});
    const at::Tensor addend = x.to(fake::device());
    Holder root;
    std::size_t waits = 0;
    const Captured captured =
        trace_step(root,
                   [&](Step& step) {
                     const auto microbatch = step.microbatch(0);
                     const std::size_t before = fake::counters().stream_waits;
                     Scope scope(root, "mlp");
                     const c10::Stream side = fake::new_stream();
                     {
                       const c10::StreamGuard guard(side);  // where the communication runs
                       Collective report({.operation = CollectiveOperation::kAllReduce,
                                          .group = "tp-0",
                                          .rank = 0,
                                          .size = 2},
                                         addend);
                       addend.mul_(2);
                       report.finished(addend);
                     }
                     // The program forgets to wait for the side stream. The norm is right all the
                     // same.
                     static_cast<void>(scope.out(addend));
                     waits = fake::counters().stream_waits - before;
                   },
                   {},
                   {{"TTRACE_RING_BYTES", "20000"}});
    EXPECT_EQ(waits, 0U);
    EXPECT_THAT(captured.ids_of_sums(), ::testing::ElementsAre("s0/m0/output/mlp/0"));
    EXPECT_NEAR(captured.sums()[0].squared.value(), x.square().sum().item<double>(), 1e-4);
  }
}

// ---- memory ----

// What the program sees of its allocator in one step: statistics, and which of its blocks it gets.
struct Memory {
  fake::MemoryStats stats;
  std::vector<std::size_t> blocks;  // numbered in the order of their first use
};

class Blocks {
 public:
  void see(const at::Tensor& tensor) {
    const auto [known, fresh] = numbers_.emplace(tensor.const_data_ptr(), numbers_.size());
    order_.push_back(known->second);
  }
  [[nodiscard]] std::vector<std::size_t> order() const { return order_; }

 private:
  std::map<const void*, std::size_t> numbers_;
  std::vector<std::size_t> order_;
};

Memory memory_of_step(const Variables& variables) {
  const TemporaryDirectory directory;
  Variables all = variables;
  if (!all.empty()) {
    all["TTRACE_DIR"] = directory.path();
  }
  const PassEnvironment environment(all);
  fake::reset(5);
  TwoLinears model;
  const at::Tensor x = random_tensor({4, 6}).to(fake::device());
  auto session = Session::from_environment();
  session.attach(model, Layout(), Annotations());
  Blocks blocks;
  Memory result;
  {
    auto step = session.step(0);
    model.train(step, x);
    for (const at::Tensor& parameter : model.parameters()) {
      blocks.see(parameter.grad());
      parameter.mutable_grad().reset();
    }
    for (int round = 0; round < 3; ++round) {
      at::Tensor y = x;
      for (int layer = 0; layer < 4; ++layer) {
        y = (y * 2).relu();
        blocks.see(y);
      }
      step.gradients_reduced({{"fc1.bias", y[0].slice(0, 0, 5)}});
    }
    result.stats = fake::memory();
  }
  result.blocks = blocks.order();
  return result;
}

TEST_F(FakeDeviceTest, TheProgramsMemoryIsThatOfAnUntracedRunButForOneRing) {
  const Memory plain = memory_of_step({});
  const Memory traced = memory_of_step({{"TTRACE_PASS", "reference"}, {"TTRACE_DIR", "."}});
  constexpr std::size_t kRing = std::size_t{256} << 20;
  EXPECT_EQ(traced.blocks, plain.blocks);
  EXPECT_EQ(traced.stats.allocations, plain.stats.allocations + 1);
  EXPECT_EQ(traced.stats.reuses, plain.stats.reuses);
  EXPECT_EQ(traced.stats.in_use, plain.stats.in_use + kRing);
  EXPECT_EQ(traced.stats.waiting, 0U) << "no block of the program waits for a stream of ours";
  EXPECT_EQ(fake::memory().in_use, 0U) << "the ring is gone with its session";
  EXPECT_EQ(fake::pinned_memory().in_use, 0U);
}

TEST_F(FakeDeviceTest, PlainCopiesDoWhereThereIsNoMemoryForARing) {
  Holder root;
  const at::Tensor values = random_tensor({4, 6});
  const Captured captured =
      trace_step(root,
                 [&](Step& step) {
                   auto microbatch = step.microbatch(0);
                   const at::Tensor x = values.to(fake::device());
                   microbatch.data("x", x.t());
                   x.zero_();
                 },
                 {},
                 {{"TTRACE_RING_BYTES", "1000000000000000"}, {"TTRACE_ON_ERROR", "raise"}});
  EXPECT_SAME(captured.tensor("s0/m0/data/x/0"), values.t());
}

// ---- tensors that nobody reads at once ----

// Symptom that this keeps away: a hook that keeps what it cannot write yet (an output that may be
// followed by a better one, a gradient that may be replaced) holds its place in the ring, so that a
// ring smaller than all that is kept would wait for itself.
TEST_F(FakeDeviceTest, MoreIsKeptThanTheRingHolds) {
  for (const std::string bytes : {"4096", "8192", "100000"}) {
    fake::reset(9);
    Holder root;
    constexpr int kLayers = 40;
    const Captured captured =
        trace_step(root,
                   [&](Step& step) {
                     const auto microbatch = step.microbatch(0);
                     at::Tensor y = at::ones({30, 30}, fake::device()).requires_grad_() * 1;
                     for (int layer = 0; layer < kLayers; ++layer) {
                       Scope scope(root, "layer" + std::to_string(layer));
                       y = scope.out(y * 1);
                       // Its gradient hook moves on, and the gradients of all layers stay pending
                       // as fallbacks.
                       y.view({900}).add_(1);
                     }
                     y.sum().backward();
                   },
                   {},
                   {{"TTRACE_RING_BYTES", bytes}, {"TTRACE_ON_ERROR", "raise"}});
    for (int layer = 0; layer < kLayers; ++layer) {
      const std::string name = "layer" + std::to_string(layer);
      EXPECT_SAME(captured.tensor("s0/m0/output/" + name + "/0"),
                  at::full({30, 30}, static_cast<float>(layer + 1)));
    }
    EXPECT_EQ(fake::counters().device_waits, 0U);
    EXPECT_EQ(fake::pinned_memory().in_use, 0U);
  }
}

// The product of a linear is given up when its bias is added. If the stream of the linear stands
// still, it writes the product to the ring late, when another tensor has its place.
TEST_F(FakeDeviceTest, APlaceThatWasGivenUpIsUsedAgainInTheOrderOfTheStreams) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    fake::reset(seed);
    Holder root;
    torch::nn::Linear fc = root.add("fc", torch::nn::Linear(8, 8));
    fill_all(root);
    for (const at::Tensor& parameter : root.parameters()) {
      fake::move_to(parameter, fake::device());
    }
    constexpr int kTensors = 15;  // of 256 bytes: the last one gets the first place of all
    const at::Tensor values = random_tensor({kTensors, 8, 8});
    const at::Tensor tensors = values.to(fake::device());
    const Captured captured = trace_step(root,
                                         [&](Step& step) {
                                           auto microbatch = step.microbatch(0);
                                           const c10::Stream side = fake::new_stream();
                                           const fake::SignalRef gate = fake::post_gate(
                                               side, "start", fake::Opener::kOtherThread);
                                           {
                                             const c10::StreamGuard guard(side);
                                             const at::NoGradGuard no_grad;
                                             fc->forward(tensors[0].unsqueeze(0));
                                           }
                                           for (int number = 0; number < kTensors; ++number) {
                                             microbatch.data("x", tensors[number]);
                                           }
                                           fake::open(gate);
                                         },
                                         {},
                                         {{"TTRACE_RING_BYTES", "4096"},
                                          {"TTRACE_FILTER", "output/fc|data"},
                                          {"TTRACE_ON_ERROR", "raise"}});
    EXPECT_TRUE(captured.has("s0/m0/output/fc/0"));
    EXPECT_SAME(captured.tensor("s0/m0/data/x/0#14"), values[14]);
  }
}

TEST_F(FakeDeviceTest, TensorsLargerThanTheRingPassThroughInPieces) {
  for (const std::string bytes : {"4096", "5000", "70000"}) {
    fake::reset(11);
    const at::Tensor values = random_tensor({3, 50, 41, 7});
    const at::Tensor tensor = values.to(fake::device());
    Holder root;
    const Captured captured =
        trace_step(root,
                   [&](Step& step) {
                     auto microbatch = step.microbatch(0);
                     microbatch.data("whole", tensor);
                     microbatch.data("turned", tensor.permute({2, 0, 3, 1}));
                     microbatch.data("negative", at::_neg_view(tensor));
                     tensor.zero_();
                   },
                   {},
                   {{"TTRACE_RING_BYTES", bytes}, {"TTRACE_ON_ERROR", "raise"}});
    EXPECT_SAME(captured.tensor("s0/m0/data/whole/0"), values);
    EXPECT_SAME(captured.tensor("s0/m0/data/turned/0"), values.permute({2, 0, 3, 1}));
    EXPECT_SAME(captured.tensor("s0/m0/data/negative/0"), -values);
  }
}

}  // namespace
}  // namespace ttrace::testing
