// All passes of a model on an accelerator give the bits that they give on the CPU.
#include "fake_device/fixture.h"
#include "hooks/training.h"
#include "trace/file/noise_table.h"

#include <torch/csrc/autograd/custom_function.h>
#include <torch/optim/adamw.h>

#include <memory>
#include <string>
#include <vector>

namespace ttrace::testing {
namespace {

using fake::FakeDeviceTest;

constexpr std::int64_t kWidth = 8;
constexpr std::int64_t kWords = 11;

// The model keeps to operators whose CPU kernels call no other operator that rounds, as mean(),
// index_add() and products with a number do: noise reaches those on the CPU alone.

// A transformer's block, with attention and rows of experts in scopes. `error` is a factor of what
// the experts give: a bug of the candidate.
struct Block : torch::nn::Module {
  Block()
      : norm_in(register_module("norm_in",
                                torch::nn::LayerNorm(torch::nn::LayerNormOptions({kWidth})))),
        qkv(register_module("qkv", torch::nn::Linear(kWidth, 3 * kWidth))),
        out(register_module("out", torch::nn::Linear(kWidth, kWidth))),
        up(register_module("up", torch::nn::Linear(kWidth, 2 * kWidth))),
        down(register_module("down", torch::nn::Linear(2 * kWidth, kWidth))) {}

  at::Tensor forward(const at::Tensor& x) {  // [2, 5, width]
    const at::Tensor y = x + out(attention(qkv(norm_in(x))));
    return y + experts(y);
  }

  at::Tensor attention(const at::Tensor& mixed) {
    Scope scope(*this, "core_attention");
    const std::vector<at::Tensor> parts = scope.in(mixed).chunk(3, -1);
    const auto heads = [](const at::Tensor& part) {
      return part.view({2, 5, 2, -1}).transpose(1, 2);
    };
    const at::Tensor scores = heads(parts[0]).matmul(heads(parts[1]).transpose(-2, -1));
    const at::Tensor attended = scores.softmax(-1).matmul(heads(parts[2]));
    return scope.out(attended.transpose(1, 2).reshape({2, 5, kWidth}));
  }

  at::Tensor experts(const at::Tensor& x) {
    Rows rows;
    rows.index = {4, 2, 9, 0, 7, 5, 1, 8, 3, 6};
    rows.size = 10;
    const at::Tensor order = at::tensor(rows.index, at::kLong).to(x.device());
    const at::Tensor index = order.unsqueeze(1).expand({10, kWidth});
    at::Tensor y = x.view({10, kWidth}).gather(0, index);
    {
      Scope scope(*this, "experts");
      const at::Tensor factor = at::full({}, error, y.options());
      y = scope.out(down(at::gelu(up(scope.in(y, rows)))).mul(factor), rows);
    }
    return at::zeros_like(y).index_copy(0, order, y).view(x.sizes());
  }

  torch::nn::LayerNorm norm_in;
  torch::nn::Linear qkv, out, up, down;
  double error = 1.0;
};

// Runs the block again in backward.
struct CheckpointedBlock : torch::autograd::Function<CheckpointedBlock> {
  static at::Tensor forward(torch::autograd::AutogradContext* context,
                            const at::Tensor& x,
                            Block* block) {
    context->save_for_backward({x});
    context->saved_data["block"] = reinterpret_cast<std::int64_t>(block);
    return block->forward(x);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    auto* const block = reinterpret_cast<Block*>(context->saved_data["block"].toInt());
    const at::Tensor x = context->get_saved_variables()[0].detach().requires_grad_();
    at::Tensor y;
    {
      const at::AutoGradMode with_gradients(true);
      y = block->forward(x);
    }
    y.backward(gradients[0]);
    return {x.grad(), at::Tensor()};
  }
};

struct Transformer : torch::nn::Module {
  Transformer(c10::Device where, at::ScalarType type)
      : embedding(register_module("embedding", torch::nn::Embedding(kWords, kWidth))),
        first(register_module("first", std::make_shared<Block>())),
        second(register_module("second", std::make_shared<Block>())),
        head(register_module("head", torch::nn::Linear(kWidth, kWords))) {
    fill_all(*this);
    to(type);
    for (const at::Tensor& parameter : parameters()) {
      fake::move_to(parameter, where);
    }
  }

  at::Tensor losses(const at::Tensor& tokens) {  // [2, 5] -> [10]
    const at::Tensor x = first->forward(embedding(tokens));
    const at::Tensor logits = head(CheckpointedBlock::apply(x, second.get()));
    return at::cross_entropy_loss(
        logits.flatten(0, 1).to(at::kFloat), tokens.roll(1, 1).flatten(), {}, at::Reduction::None);
  }

  torch::nn::Embedding embedding;
  std::shared_ptr<Block> first, second;
  torch::nn::Linear head;
};

void train_step(Transformer& model, torch::optim::Optimizer& optimizer, Step& step) {
  optimizer.zero_grad();
  const c10::Device where = model.head->weight.device();
  for (std::int64_t number = 0; number < 2; ++number) {
    auto microbatch = step.microbatch(number, {.gradient_scale = 2.0});
    const at::Tensor tokens = at::arange(10).mul(3 + number).remainder(kWords).view({2, 5});
    const at::Tensor moved = tokens.to(where);
    microbatch.data("tokens", moved);
    const at::Tensor losses = model.losses(moved);
    microbatch.loss(losses);
    losses.sum().backward();
  }
  std::vector<NamedTensor> gradients;
  for (const auto& item : model.named_parameters()) {
    gradients.push_back({item.key(), item.value().grad()});
  }
  step.gradients_reduced(gradients);
  optimizer.step();
  std::vector<OptimizerEntry> updated;
  for (const auto& item : model.named_parameters()) {
    updated.push_back({item.key(), item.value(), {}, {}, {}, {}});
  }
  step.parameters_updated(updated);
}

// Two traced steps of a pass.
void run(const Variables& variables, c10::Device where, at::ScalarType type, double error = 1.0) {
  Variables all = with(variables, "TTRACE_STEPS", "0:2");
  all["TTRACE_ON_ERROR"] = "raise";
  all["TTRACE_RING_BYTES"] = "20000";
  const PassEnvironment environment(all);
  Transformer model(where, type);
  model.first->error = error;
  torch::optim::AdamW optimizer(model.parameters(), torch::optim::AdamWOptions(0.01));
  auto session = Session::from_environment();
  session.attach(model, Layout(), Annotations());
  for (std::int64_t iteration = 0; iteration < 2; ++iteration) {
    auto step = session.step(iteration);
    train_step(model, optimizer, step);
  }
}

// Returns the number of tensors.
std::size_t expect_same_traces(const std::string& left, const std::string& right) {
  std::size_t count = 0;
  for (const std::string step : {"/step000000/rank00000.h5", "/step000001/rank00000.h5"}) {
    const Captured a(left + step);
    const Captured b(right + step);
    EXPECT_EQ(a.ids_with("/"), b.ids_with("/"));
    EXPECT_EQ(a.notes(), b.notes());
    EXPECT_EQ(a.edges(), b.edges());
    for (const std::string& id : a.ids()) {
      EXPECT_TRUE(fake::same_bits(a.tensor(id), b.tensor(id))) << id;
      ++count;
    }
  }
  return count;
}

std::size_t expect_same_noise(const std::string& left, const std::string& right) {
  const std::vector<NoisePass> a = read_noise(left);
  const std::vector<NoisePass> b = read_noise(right);
  EXPECT_EQ(a.size(), 1U);
  EXPECT_EQ(b.size(), 1U);
  const std::vector<NoiseRow>& rows = a.at(0).rows;
  const std::vector<NoiseRow>& others = b.at(0).rows;
  EXPECT_EQ(rows.size(), others.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(rows[i].id, others.at(i).id);
    EXPECT_EQ(rows[i].sum_squared, others.at(i).sum_squared) << to_string(rows[i].id);
    EXPECT_EQ(rows[i].max_abs, others.at(i).max_abs);
    EXPECT_EQ(rows[i].along_reference, others.at(i).along_reference);
    EXPECT_EQ(rows[i].slices, others.at(i).slices);
  }
  return rows.size();
}

class DevicePasses : public FakeDeviceTest {
 protected:
  // The passes of one type on the CPU, and then on the device for several seeds.
  void expect_passes_of_the_cpu(at::ScalarType type, int seeds) {
    const TemporaryDirectory cpu;
    run_all(cpu.path(), at::kCPU, type);
    std::size_t tensors = 0;
    std::size_t rows = 0;
    for (int seed = 0; seed < seeds; ++seed) {
      SCOPED_TRACE("seed " + std::to_string(seed));
      fake::reset(static_cast<std::uint64_t>(seed));
      const TemporaryDirectory device;
      run_all(device.path(), fake::device(), type);
      EXPECT_EQ(fake::counters().device_waits, 0U);
      for (const std::string pass : {"/reference", "/candidate", "/forced", "/dyadic"}) {
        SCOPED_TRACE(pass);
        tensors += expect_same_traces(cpu.path() + pass, device.path() + pass);
      }
      rows += expect_same_noise(cpu / "reference", device / "reference");
    }
    EXPECT_GT(tensors, 400U);
    EXPECT_GT(rows, 100U);
    RecordProperty("tensors", static_cast<int>(tensors));
    RecordProperty("noise_rows", static_cast<int>(rows));
  }

 private:
  static void run_all(const std::string& folder, c10::Device where, at::ScalarType type) {
    const std::string reference = folder + "/reference";
    const std::string candidate = folder + "/candidate";
    run(reference_pass(reference), where, type);
    run(with(candidate_pass(candidate, ""), "TTRACE_START", "own"), where, type, 1.25);
    run(noise_pass(reference, 1), where, type);
    run({{"TTRACE_PASS", "forced"},
         {"TTRACE_DIR", folder + "/forced"},
         {"TTRACE_CANDIDATE", candidate}},
        where,
        type);
    run(with(reference_pass(folder + "/dyadic"), "TTRACE_INPUTS", "dyadic"), where, type);
  }
};

TEST_F(DevicePasses, OfF32GiveTheBitsOfTheCpu) {
  expect_passes_of_the_cpu(at::kFloat, 4);
}

TEST_F(DevicePasses, OfBf16GiveTheBitsOfTheCpu) {
  expect_passes_of_the_cpu(at::kBFloat16, 2);
}

}  // namespace
}  // namespace ttrace::testing
