// A real training program with a traced session, two micro-batches a step, that gets lost on
// request: in step --at, between the forward and the backward of its last micro-batch.
//
//   --rank N --world N    several of them are ranks that hold the same (no communication)
//   --steps N             iterations (default 3)
//   --at N --do ACTION    throw, exit, abort, kill, crash, hang, or remove (deletes its TTRACE_DIR)
//   --meet FILE           waits before that moment until FILE is there
//   --tag TEXT            ignored: makes the process findable
#include <ttrace/session.h>

#include <ATen/ATen.h>
#include <boost/program_options.hpp>
#include <torch/nn/modules/linear.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <iostream>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

namespace {

namespace po = boost::program_options;

struct Net : torch::nn::Module {
  torch::nn::Linear fc1 = register_module("fc1", torch::nn::Linear(16, 64));
  torch::nn::Linear fc2 = register_module("fc2", torch::nn::Linear(64, 4));

  at::Tensor forward(const at::Tensor& x) { return fc2->forward(fc1->forward(x)); }
};

struct Options {
  int rank = 0;
  int world = 1;
  int steps = 3;
  int at = -1;
  std::string action;
  std::string meet;
};

Options parse(int argc, char** argv) {
  Options result;
  std::string tag;
  po::options_description named;
  named.add_options()("rank", po::value(&result.rank))("world", po::value(&result.world))(
      "steps", po::value(&result.steps))("at", po::value(&result.at))(
      "do", po::value(&result.action))("meet", po::value(&result.meet))("tag", po::value(&tag));
  po::variables_map values;
  po::store(po::parse_command_line(argc, argv, named), values);
  po::notify(values);
  return result;
}

void get_lost(const Options& options) {
  using namespace std::chrono_literals;
  while (!options.meet.empty() && !std::filesystem::exists(options.meet)) {
    std::this_thread::sleep_for(1ms);
  }
  const std::map<std::string, void (*)()> actions = {
      {"", [] {}},
      {"throw", [] { throw std::runtime_error("out of data"); }},
      {"exit", [] { std::exit(3); }},
      {"abort", [] { std::abort(); }},
      {"kill", [] { std::raise(SIGKILL); }},
      {"crash",
       [] {
         std::signal(SIGSEGV, SIG_DFL);  // a sanitizer's handler would end it otherwise
         std::raise(SIGSEGV);
       }},
      {"hang",
       [] {
         for (;;) {
           pause();
         }
       }},
      {"remove", [] { std::filesystem::remove_all(std::getenv("TTRACE_DIR")); }},
  };
  actions.at(options.action)();
}

void train(const Options& options) {
  auto tracer = ttrace::Session::from_environment();
  const std::string precision = tracer.precision("f32");
  const at::ScalarType type = precision == "f64" ? at::kDouble : at::kFloat;
  auto net = std::make_shared<Net>();
  net->to(type);
  std::vector<ttrace::NamedTensor> parameters;
  for (const auto& item : net->named_parameters()) {
    parameters.push_back({item.key(), item.value()});
  }
  const ttrace::Layout layout{.rank = options.rank, .world_size = options.world, .axes = {}};
  ttrace::fill_parameters(parameters, layout, ttrace::Annotations(), 1);

  tracer.describe(
      {.model = {{"hidden", "64"}}, .data = {}, .versions = {}, .precision = precision});
  tracer.attach(*net, layout, ttrace::Annotations());
  tracer.load_parameters();
  for (int iteration = 0; iteration < options.steps; ++iteration) {
    auto step = tracer.step(iteration);
    for (int index = 0; index < 2; ++index) {
      auto microbatch = step.microbatch(index);
      // [b, features]
      const at::Tensor x = (at::arange(128.0F).view({8, 16}) * (index + 1)).sin().to(type);
      microbatch.data("x", x);
      const at::Tensor loss = net->forward(x).square().mean(-1);  // [b]
      microbatch.loss(loss);
      if (iteration == options.at && index == 1) {
        get_lost(options);
      }
      loss.mean().backward();
    }
    std::vector<ttrace::NamedTensor> gradients;
    for (const auto& item : net->named_parameters()) {
      gradients.push_back({item.key(), item.value().grad()});
    }
    step.gradients_reduced(gradients);
    const at::NoGradGuard no_grad;
    for (at::Tensor& parameter : net->parameters()) {
      parameter.add_(parameter.grad(), -0.1);
      parameter.mutable_grad().zero_();
    }
  }
  std::cout << "trained to the end" << std::endl;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    train(parse(argc, argv));
  } catch (const std::exception& error) {
    std::cerr << "traced_trainer: " << error.what() << std::endl;
    return 70;
  }
}
