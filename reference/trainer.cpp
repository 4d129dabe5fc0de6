#include "trainer.h"

#include "digest.h"
#include "gpt.h"
#include "loss.h"

#include <ttrace/annotations.h>

#include <cstdio>

namespace ttrace::reference {
namespace {

std::vector<NamedTensor> named_parameters(const Gpt& model) {
  std::vector<NamedTensor> result;
  for (const auto& item : model.named_parameters()) {
    result.push_back({item.key(), item.value()});
  }
  return result;
}

std::string short_text(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", value);
  return text;
}

// Every size and choice under its name in the configuration: a candidate with another one cannot be
// compared.
RunDescription describe(const Config& config, const ByteCorpus& corpus) {
  const ModelConfig& model = config.model;
  RunDescription description;
  description.model = {{"layers", std::to_string(model.layers)},
                       {"hidden", std::to_string(model.hidden)},
                       {"heads", std::to_string(model.heads)},
                       {"query_groups", std::to_string(model.query_groups)},
                       {"ffn", std::to_string(model.ffn)},
                       {"vocabulary", std::to_string(model.vocabulary)},
                       {"sequence", std::to_string(model.sequence)},
                       {"activation", to_string(model.activation)},
                       {"tied", model.tied ? "true" : "false"},
                       {"rotary_base", std::to_string(model.rotary_base)},
                       {"norm_epsilon", short_text(model.norm_epsilon)},
                       {"loss", to_string(config.loss)},
                       {"fp8_recipe", to_string(config.fp8.recipe)},
                       {"fp8_history", std::to_string(config.fp8.history)},
                       {"fp8_bf16_ends", std::to_string(config.fp8.bf16_ends)}};
  description.data = {{"digest", corpus.digest()},
                      {"seed", std::to_string(config.data.seed)},
                      {"micro_batch_size", std::to_string(config.data.micro_batch_size)},
                      {"micro_batches", std::to_string(config.data.micro_batches)},
                      {"documents", to_string(config.data.documents)},
                      {"masked", to_string(config.data.masked)}};
  description.versions = {{"ttrace_reference", TTRACE_VERSION}};
  description.precision = to_string(config.precision);
  return description;
}

void add(Digest& digest, const at::Tensor& tensor) {
  digest.add(tensor.const_data_ptr(), tensor.nbytes());
}

}  // namespace

Trainer::Trainer(const Config& config, const std::string& annotations)
    : config_(config),
      corpus_(config.data, config.model),
      model_(std::make_shared<Gpt>(config.model, config.precision)),
      session_(Session::from_environment()) {
  if (config_.precision == Precision::kFp8) {
    model_->use_fp8(config_.fp8);
  }
  start_session(annotations);
  // After start_session: both copy what the parameters start from.
  gradients_ = std::make_unique<MainGradients>(named_parameters(*model_));
  optimizer_ = std::make_unique<AdamW>(named_parameters(*model_), config_.optimizer);
}

Trainer::~Trainer() = default;

void Trainer::start_session(const std::string& annotations) {
  const Layout one_device;
  const Annotations dims = Annotations::load(annotations);
  fill_parameters(named_parameters(*model_), one_device, dims, config_.data.seed);
  session_.describe(describe(config_, corpus_));
  session_.attach(*model_, one_device, dims);
  session_.load_parameters();
}

Trainer::Addend Trainer::run_micro_batch(std::int64_t iteration, std::int64_t index, Step& step) {
  Microbatch microbatch = step.microbatch(index);
  const std::vector<std::int64_t> order =
      microbatch.permutation(config_.data.micro_batch_size);  // [B], the identity in plain runs
  const Samples samples = reordered(corpus_.samples(iteration, index), at::tensor(order));
  microbatch.data("tokens", samples.tokens);
  microbatch.data("labels", samples.labels);
  microbatch.data("loss_mask", samples.counts);

  const Packing packing = config_.data.documents == Documents::kPacked
                              ? Packing{samples.positions, samples.documents}
                              : Packing{};
  const at::Tensor logits = model_->forward(samples.tokens, packing);  // [S, B, V]
  const at::Tensor per_token = cross_entropy(logits, samples.labels);  // [S, B]
  microbatch.loss(per_token);
  const at::Tensor share =
      share_of_step(per_token, samples.counts, config_.loss, config_.data.micro_batches);
  share.backward();
  gradients_->add_micro_batch();
  return {share.item<double>(), samples.counts.sum().item<double>()};
}

StepResult Trainer::step(std::int64_t iteration) {
  Step step = session_.step(iteration);
  StepResult result;
  Digest digest;

  double tokens = 0.0;  // of the step that count
  gradients_->zero();
  for (std::int64_t index = 0; index < config_.data.micro_batches; ++index) {
    const Addend addend = run_micro_batch(iteration, index, step);
    result.loss += addend.loss;
    tokens += addend.tokens;
  }
  if (config_.loss == Loss::kPerToken) {
    result.loss /= tokens;
    gradients_->divide(tokens);
  }
  step.gradients_reduced(gradients_->tensors());
  step.scalar("loss", result.loss);
  digest.add(&result.loss, sizeof result.loss);
  for (const auto& gradient : gradients_->tensors()) {
    add(digest, gradient.tensor);
  }

  result.grad_norm = gradients_->norm();
  step.scalar("grad_norm", result.grad_norm);
  gradients_->clip(result.grad_norm, config_.optimizer.clip);
  optimizer_->step(gradients_->tensors());
  model_->end_step();
  step.parameters_updated(optimizer_->entries());
  for (const auto& entry : optimizer_->entries()) {
    add(digest, entry.param);
  }
  result.digest = digest.text();
  return result;
}

}  // namespace ttrace::reference
