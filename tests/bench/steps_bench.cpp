// A small model trained with and without TTrace in one process.
#include "bench/figures.h"
#include "bench/measure.h"
#include "hooks/pass_environment.h"
#include "support/temporary_directory.h"
#include "trace/file/trace_writer.h"

#include <ttrace/error.h>
#include <ttrace/scope.h>
#include <ttrace/session.h>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace ttrace::bench {
namespace {

constexpr std::int64_t kLayers = 4;
constexpr std::int64_t kHidden = 256;
constexpr std::int64_t kVocabulary = 512;
constexpr std::int64_t kPositions = 128;
constexpr std::int64_t kSamples = 4;
constexpr int kOffPairs = 30;
constexpr int kStepsPerPair = 6;  // of each kind
constexpr int kTracedSteps = 16;

constexpr auto kAnnotations = R"(tensors:
  - path: tokens
    value: "b s"
  - path: loss
    value: "b s"
  - path: embedding
    value: "b s h"
    inputs: ["b s"]
  - path: output_layer
    value: "b s v"
    inputs: ["b s h"]
  - path: final_layernorm
    value: "b s h"
    inputs: ["b s h"]
  - path: layers.*.linear_fc1
    value: "b s f"
    inputs: ["b s h"]
  - path: layers.*.layernorm
    value: "b s h"
    inputs: ["b s h"]
  - path: layers.*.linear_fc2
    value: "b s h"
    inputs: ["b s f"]
  - path: layers.*
    value: "b s h"
    inputs: ["b s h"]
)";

// kHooks: compiled with TTrace's lines. Without them there is nothing of TTrace in the program.
template <bool kHooks>
struct Block : torch::nn::Module {
  Block()
      : layernorm(register_module("layernorm",
                                  torch::nn::LayerNorm(torch::nn::LayerNormOptions({kHidden})))),
        fc1(register_module("linear_fc1", torch::nn::Linear(kHidden, 4 * kHidden))),
        fc2(register_module("linear_fc2", torch::nn::Linear(4 * kHidden, kHidden))) {}

  at::Tensor forward(const at::Tensor& input) {  // [B, S, H]
    if constexpr (kHooks) {
      Scope scope(*this);
      const at::Tensor x = scope.in(input);
      return scope.out(x + compute(x));
    } else {
      return input + compute(input);
    }
  }
  at::Tensor compute(const at::Tensor& x) {
    return fc2->forward(at::gelu(fc1->forward(layernorm->forward(x))));
  }

  torch::nn::LayerNorm layernorm;
  torch::nn::Linear fc1;
  torch::nn::Linear fc2;
};

template <bool kHooks>
struct Model : torch::nn::Module {
  Model()
      : embedding(register_module("embedding", torch::nn::Embedding(kVocabulary, kHidden))),
        final_layernorm(register_module(
            "final_layernorm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({kHidden})))),
        output_layer(register_module("output_layer", torch::nn::Linear(kHidden, kVocabulary))) {
    const auto list = register_module("layers", std::make_shared<torch::nn::Module>("layers"));
    for (std::int64_t n = 0; n < kLayers; ++n) {
      layers.push_back(list->register_module(std::to_string(n), std::make_shared<Block<kHooks>>()));
    }
  }

  at::Tensor forward(const at::Tensor& tokens) {  // [B, S]
    at::Tensor x = embedding->forward(tokens);    // [B, S, H]
    for (const auto& layer : layers) {
      x = layer->forward(x);
    }
    return output_layer->forward(final_layernorm->forward(x));  // [B, S, V]
  }

  torch::nn::Embedding embedding;
  torch::nn::LayerNorm final_layernorm;
  torch::nn::Linear output_layer;
  std::vector<std::shared_ptr<Block<kHooks>>> layers;
};

at::Tensor random_tokens() {
  auto generator = at::detail::createCPUGenerator(3);
  return at::randint(kVocabulary, {kSamples, kPositions}, generator, at::kLong);
}

template <bool kHooks>
class Trainer {
 public:
  Trainer() {
    for (const auto& item : model_->named_parameters()) {
      parameters_.push_back({item.key(), item.value()});
    }
    const Annotations annotations = Annotations::parse(kAnnotations);
    fill_parameters(parameters_, Layout(), annotations, 1);
    if constexpr (kHooks) {
      session_.emplace(Session::from_environment());
      session_->describe({.model = {{"hidden", std::to_string(kHidden)}},
                          .data = {{"seed", "3"}},
                          .versions = {},
                          .precision = "f32"});
      session_->attach(*model_, Layout(), annotations);
      session_->load_parameters();
    }
  }

  void step(std::int64_t iteration) {
    if constexpr (kHooks) {
      Step step = session_->step(iteration);
      {
        Microbatch microbatch = step.microbatch(0);
        const at::Tensor rows = at::tensor(microbatch.permutation(kSamples));  // [B]
        const at::Tensor tokens = tokens_.index_select(0, rows);
        microbatch.data("tokens", tokens);
        const at::Tensor per_token = loss(tokens);
        microbatch.loss(per_token);
        per_token.mean().backward();
      }
      const std::vector<NamedTensor> gradients = main_gradients();
      step.gradients_reduced(gradients);
      update(gradients);
      std::vector<OptimizerEntry> entries;
      for (const NamedTensor& parameter : parameters_) {
        entries.push_back({parameter.path, parameter.tensor, {}, {}, {}});
      }
      step.parameters_updated(entries);
    } else {
      const at::Tensor rows = at::arange(kSamples, at::kLong);
      loss(tokens_.index_select(0, rows)).mean().backward();
      update(main_gradients());
    }
  }

 private:
  at::Tensor loss(const at::Tensor& tokens) {  // [B, S]
    const at::Tensor logits = model_->forward(tokens);
    return -at::log_softmax(logits, -1).gather(-1, tokens.unsqueeze(-1)).squeeze(-1);
  }
  // Both programs hold them in a list, as trainers do: it decides when their memory is given back.
  std::vector<NamedTensor> main_gradients() const {
    std::vector<NamedTensor> gradients;
    for (const NamedTensor& parameter : parameters_) {
      gradients.push_back({parameter.path, parameter.tensor.grad()});
    }
    return gradients;
  }
  void update(const std::vector<NamedTensor>& gradients) {
    const at::NoGradGuard no_grad;
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      at::Tensor tensor = parameters_[i].tensor;
      tensor.sub_(gradients[i].tensor, 0.01);
      tensor.mutable_grad().reset();
    }
  }

  std::shared_ptr<Model<kHooks>> model_ = std::make_shared<Model<kHooks>>();
  std::vector<NamedTensor> parameters_;
  at::Tensor tokens_ = random_tokens();
  std::optional<Session> session_;
};

// Fresh programs for every pair, each made first in every other one, so that a lucky place in
// memory does not favour one of them.
void measure_inert(nlohmann::ordered_json& figures) {
  std::vector<double> ratios;
  for (int pair = 0; pair < kOffPairs; ++pair) {
    std::optional<Trainer<true>> with_hooks;
    std::optional<Trainer<false>> without;
    if (pair % 2 == 0) {
      with_hooks.emplace();
    }
    without.emplace();
    if (!with_hooks) {
      with_hooks.emplace();
    }
    std::int64_t iteration = 0;
    const Pairs times = in_turn(
        kStepsPerPair, [&] { with_hooks->step(iteration++); }, [&] { without->step(0); });
    ratios.push_back(median(times.first) / median(times.second));
  }
  const Interval interval = interval_of_median(ratios);
  figures["off_step_ratio"] = median(ratios);
  figures["off_step_ratio_low"] = interval.low;
  figures["off_step_ratio_high"] = interval.high;
}

// Median of a traced step over a plain one. in_turn() begins with a step that is not measured.
double traced_over_plain(testing::Variables variables) {
  variables["TTRACE_STEPS"] = "0:" + std::to_string(kTracedSteps + 1);
  const testing::PassEnvironment environment(std::move(variables));
  Trainer<true> traced;
  Trainer<false> plain;
  std::int64_t iteration = 0;
  const Pairs times = in_turn(
      kTracedSteps, [&] { traced.step(iteration++); }, [&] { plain.step(0); });
  return median(times.ratios());
}

void measure_traced(nlohmann::ordered_json& figures) {
  const testing::TemporaryDirectory directory;
  figures["capture_step_ratio"] = traced_over_plain(testing::reference_pass(directory.path()));
  const std::string file = step_file(directory.path(), 0, 0);
  TTRACE_CHECK(std::filesystem::exists(file), InternalError, "the traced step wrote no ", file);
  figures["bytes_per_step"] = std::filesystem::file_size(file);
  figures["noise_step_ratio"] = traced_over_plain(testing::noise_pass(directory.path(), 1));
}

void run(nlohmann::ordered_json& figures) {
  at::set_num_threads(1);
  measure_inert(figures);
  measure_traced(figures);
}

}  // namespace

Group steps_group() {
  return {"steps",
          {{"off_step_ratio",
            "1.00 lies between the two below",
            "a step of a program with TTrace's lines, not traced, over one without them: median "
            "of 30 interleaved pairs of programs"},
           {"off_step_ratio_low", "", "lower end of its 95 % bootstrap interval"},
           {"off_step_ratio_high", "", "upper end of it"},
           {"capture_step_ratio", "", "a step that is traced and written over a plain one"},
           {"bytes_per_step", "", "size of the file that it writes"},
           {"noise_step_ratio", "", "a step of a noise pass over a plain one"}},
          run};
}

}  // namespace ttrace::bench
