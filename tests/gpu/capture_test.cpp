// A model on the GPU is captured as the same model on the CPU is.
#include "gpu/cuda.h"
#include "hooks/training.h"

namespace ttrace::testing {
namespace {

struct Model : torch::nn::Module {
  Model()
      : first(register_module("linear_fc1", torch::nn::Linear(24, 48))),
        second(register_module("linear_fc2", torch::nn::Linear(48, 24))) {}
  at::Tensor forward(const at::Tensor& x) {  // [B, 24]
    Scope scope(*this, "mlp");
    return scope.out(second->forward(at::gelu(first->forward(scope.in(x)))));
  }
  torch::nn::Linear first;
  torch::nn::Linear second;
};

// One traced step in doubles, where both devices round alike to 1e-12.
Captured trace_on(c10::DeviceType device) {
  Model model;
  model.to(at::kDouble);
  fill_all(model);
  model.to(device);
  return trace_step(model, [&](Step& step) {
    const at::Tensor x = random_tensor({6, 24}).to(at::kDouble).to(device);
    {
      Microbatch microbatch = step.microbatch(0);
      microbatch.data("x", x);
      const at::Tensor per_row = model.forward(x).square().sum(-1);  // [B]
      microbatch.loss(per_row);
      per_row.sum().backward();
    }
    std::vector<NamedTensor> gradients;
    for (const auto& item : model.named_parameters()) {
      gradients.push_back({item.key(), item.value().grad()});
    }
    step.gradients_reduced(gradients);
  });
}

TEST(CudaCapture, EqualsThatOfTheCpu) {
  TTRACE_NEED_GPU(why_no_gpu());
  const Captured expected = trace_on(at::kCPU);
  const Captured captured = trace_on(at::kCUDA);
  ASSERT_EQ(captured.ids(), expected.ids());
  EXPECT_EQ(captured.notes(), expected.notes());
  for (const std::string& id : expected.ids()) {
    SCOPED_TRACE(id);
    EXPECT_TRUE(at::allclose(captured.tensor(id), expected.tensor(id), 1e-10, 1e-12));
  }
}

TEST(CudaCapture, FilledParametersAreThoseOfTheCpu) {
  TTRACE_NEED_GPU(why_no_gpu());
  const at::Tensor cpu = at::empty({33, 65}, at::kBFloat16);
  const at::Tensor gpu = at::empty({33, 65}, at::TensorOptions(at::kCUDA).dtype(at::kBFloat16));
  fill_parameters({{"weight", cpu}}, Layout(), Annotations(), 1);
  fill_parameters({{"weight", gpu}}, Layout(), Annotations(), 1);
  EXPECT_SAME(gpu.to(at::kCPU), cpu);
}

}  // namespace
}  // namespace ttrace::testing
