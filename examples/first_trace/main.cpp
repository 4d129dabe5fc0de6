// A two-layer network trained for one step, with the lines that make it traceable. Run it alone and
// they do nothing; `ttrace check` runs it as reference and as candidate (README.md).
#include <ttrace/session.h>

#include <ATen/ATen.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <cstdio>
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

struct Net : torch::nn::Module {
  torch::nn::Linear fc1 = register_module("fc1", torch::nn::Linear(16, 32));
  torch::nn::Linear fc2 = register_module("fc2", torch::nn::Linear(32, 1));
  bool wrong = false;  // a bug to find

  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor before = fc1->forward(x);
    ttrace::Scope scope(*this, "activation");  // has no parameters, so it needs a name
    const at::Tensor hidden = scope.out(before.tanh() * (wrong ? 1.02 : 1.0));
    return fc2->forward(hidden);
  }
};

void train(bool wrong) {
  at::manual_seed(1);
  auto net = std::make_shared<Net>();
  net->wrong = wrong;

  auto tracer = ttrace::Session::from_environment();
  const std::string precision = tracer.precision("f32");  // a check runs the reference in f64, too
  net->to(precision == "f64" ? at::kDouble : at::kFloat);
  tracer.describe({.model = {{"hidden", "32"}}, .data = {{"seed", "1"}}, .precision = precision});
  tracer.attach(*net, ttrace::Layout(), ttrace::Annotations());
  tracer.load_parameters();

  torch::optim::SGD optimizer(net->parameters(), 0.1);
  for (int iteration = 0; iteration < 3; ++iteration) {
    auto step = tracer.step(iteration);
    const at::Tensor x = at::randn({8, 16}).to(net->fc1->weight.dtype());  // [samples, features]
    const at::Tensor target = x.sum(1, true).sin();
    {
      auto microbatch = step.microbatch(0);
      microbatch.data("x", x);
      const at::Tensor loss = (net->forward(x) - target).square();  // [samples, 1]
      microbatch.loss(loss);
      loss.mean().backward();
      std::printf("iteration %d: loss %.6f\n", iteration, loss.mean().item<double>());
    }
    std::vector<ttrace::NamedTensor> gradients;
    std::vector<ttrace::OptimizerEntry> updated;
    for (const auto& item : net->named_parameters()) {
      gradients.push_back({item.key(), item.value().grad()});
      updated.push_back({.path = item.key(), .param = item.value()});
    }
    step.gradients_reduced(gradients);
    optimizer.step();
    step.parameters_updated(updated);
    optimizer.zero_grad();
  }
}

int main(int argc, char** argv) {
  try {
    train(argc > 1 && std::string_view(argv[1]) == "--wrong");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "first_trace: %s\n", error.what());
    return 1;
  }
}
