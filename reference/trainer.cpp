#include "trainer.h"

#include "digest.h"
#include "gpt.h"
#include "loss.h"

#include <ttrace/annotations.h>
#include <ttrace/start_from.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>

#include <cstdio>

namespace ttrace::reference {
namespace {

// All but the experts' biases, which no gradient changes.
std::vector<NamedTensor> filled_parameters(const Gpt& model) {
  std::vector<NamedTensor> result;
  for (const auto& item : model.named_parameters()) {
    if (!item.key().ends_with(".expert_bias")) {
      result.push_back({.path = item.key(), .tensor = item.value()});
    }
  }
  return result;
}

// Those that are not frozen.
std::vector<NamedTensor> trained_parameters(const Gpt& model) {
  std::vector<NamedTensor> result = filled_parameters(model);
  std::erase_if(result, [](const NamedTensor& item) { return !item.tensor.requires_grad(); });
  return result;
}

std::string joined(const std::vector<std::int64_t>& numbers) {
  std::string text;
  for (const std::int64_t number : numbers) {
    text += (text.empty() ? "" : ",") + std::to_string(number);
  }
  return text;
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
                       {"dropout", short_text(model.dropout)},
                       {"attention_dropout", short_text(model.attention_dropout)},
                       {"label_smoothing", short_text(model.label_smoothing)},
                       {"frozen", joined(model.frozen)},
                       {"experts", std::to_string(model.experts)},
                       {"top_k", std::to_string(model.top_k)},
                       {"shared_expert", std::to_string(model.shared_expert)},
                       {"aux_loss", short_text(model.aux_loss)},
                       {"z_loss", short_text(model.z_loss)},
                       {"expert_bias", short_text(model.expert_bias)},
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

bool has_router_losses(const ModelConfig& model) {
  return model.aux_loss > 0.0 || model.z_loss > 0.0;
}

// [S, B]: s B + order[b], the numbers that tokens [B, S] have without a permutation.
at::Tensor token_numbers(const at::Tensor& tokens, const std::vector<std::int64_t>& order) {
  const at::Tensor row = at::arange(tokens.size(1)).unsqueeze(-1);
  return (row * tokens.size(0) + at::tensor(order, at::kLong)).to(tokens.device());
}

Config with_asked_precision(Config config, const Session& session) {
  config.precision = parse_precision(session.precision(to_string(config.precision)));
  return config;
}

void add_to(Digest& digest, const at::Tensor& tensor) {
  const at::Tensor host = tensor.to(at::kCPU);
  digest.add(host.const_data_ptr(), host.nbytes());
}

}  // namespace

Trainer::Trainer(const Config& config, const std::string& annotations, c10::Device device)
    : session_(Session::from_environment()),
      config_(with_asked_precision(config, session_)),
      device_(device),
      corpus_(config.data, config.model),
      model_(std::make_shared<Gpt>(config.model, config_.precision, device)) {
  if (is_fp8(config_.precision)) {
    model_->use_fp8(config_.fp8);
  }
  start_session(annotations);
  // After start_session: both copy what the parameters start from.
  gradients_ = std::make_unique<MainGradients>(trained_parameters(*model_));
  optimizer_ = std::make_unique<AdamW>(trained_parameters(*model_), config_.optimizer);
}

Trainer::~Trainer() = default;

void Trainer::start_session(const std::string& annotations) {
  const Layout one_device;
  const Annotations dims = Annotations::load(annotations);
  fill_parameters(filled_parameters(*model_), one_device, dims, config_.data.seed);
  if (!config_.start.empty()) {
    start_from(config_.start, filled_parameters(*model_), one_device, dims);
  }
  session_.describe(describe(config_, corpus_));
  session_.attach(*model_, one_device, dims);
  session_.load_parameters();
}

at::Tensor Trainer::router_share(const Routing& routing, const at::Tensor& counts) const {
  const double share = config_.loss == Loss::kPerToken
                           ? counts.sum().item<double>()
                           : 1.0 / static_cast<double>(config_.data.micro_batches);
  return (config_.model.aux_loss * routing.balance_loss + config_.model.z_loss * routing.z_loss) *
         share;
}

Trainer::Addend Trainer::run_micro_batch(std::int64_t iteration, std::int64_t index, Step& step) {
  Microbatch microbatch = step.microbatch(index);
  const std::vector<std::int64_t> order =
      microbatch.permutation(config_.data.micro_batch_size);  // [B], the identity in plain runs
  const Samples samples =
      moved_to(device_, reordered(corpus_.samples(iteration, index), at::tensor(order)));
  microbatch.data("tokens", samples.tokens);
  microbatch.data("labels", samples.labels);
  microbatch.data("loss_mask", samples.counts);

  const Packing packing = config_.data.documents == Documents::kPacked
                              ? Packing{samples.positions, samples.documents}
                              : Packing{};
  const Draw draw{config_.data.seed, iteration, index, at::tensor(order)};
  Routing routing{.tokens = token_numbers(samples.tokens, order), .counted = samples.counts.t()};
  const at::Tensor logits = model_->forward(samples.tokens, packing, draw, routing);  // [S, B, V]
  const at::Tensor per_token =
      cross_entropy(logits, samples.labels, config_.model.label_smoothing);  // [S, B]
  microbatch.loss(per_token);
  const at::Tensor share =
      share_of_step(per_token, samples.counts, config_.loss, config_.data.micro_batches);
  Addend addend{.loss = share.item<double>(), .tokens = samples.counts.sum().item<double>()};
  if (has_router_losses(config_.model)) {
    (share + router_share(routing, samples.counts)).backward();
    addend.balance_loss = routing.balance_loss.item<double>();
    addend.z_loss = routing.z_loss.item<double>();
  } else {
    share.backward();
  }
  gradients_->add_micro_batch();
  addend.loads = std::move(routing.loads);
  return addend;
}

void Trainer::add(Addend& sum, const Addend& addend) {
  sum.loss += addend.loss;
  sum.tokens += addend.tokens;
  sum.balance_loss += addend.balance_loss;
  sum.z_loss += addend.z_loss;
  sum.loads.resize(addend.loads.size());
  for (std::size_t n = 0; n < addend.loads.size(); ++n) {
    at::Tensor& load = sum.loads[n];
    load = load.defined() ? load + addend.loads[n] : addend.loads[n];
  }
}

void Trainer::finish_routing(const Addend& total, Step& step) {
  const ModelConfig& model = config_.model;
  const auto micro_batches = static_cast<double>(config_.data.micro_batches);
  if (model.aux_loss > 0.0) {
    step.scalar("aux_loss", total.balance_loss / micro_batches);
  }
  if (model.z_loss > 0.0) {
    step.scalar("z_loss", total.z_loss / micro_batches);
  }
  if (model.expert_bias > 0.0) {
    model_->update_expert_biases(total.loads);
  }
}

std::vector<OptimizerEntry> Trainer::updated() const {
  std::vector<OptimizerEntry> entries = optimizer_->entries();
  for (const NamedTensor& bias : model_->expert_biases()) {
    OptimizerEntry entry;
    entry.path = bias.path;
    entry.param = bias.tensor;
    entries.push_back(std::move(entry));
  }
  return entries;
}

StepResult Trainer::step(std::int64_t iteration) {
  Step step = session_.step(iteration);
  if (iteration > 0) {  // else the optimizer keeps nothing yet
    step.states_before(updated());
  }
  StepResult result;
  Digest digest;

  Addend total;
  gradients_->zero();
  for (std::int64_t index = 0; index < config_.data.micro_batches; ++index) {
    add(total, run_micro_batch(iteration, index, step));
  }
  result.loss = total.loss;
  if (config_.loss == Loss::kPerToken) {
    result.loss /= total.tokens;
    gradients_->divide(total.tokens);
  }
  step.gradients_reduced(gradients_->tensors());
  step.scalar("loss", result.loss);
  digest.add(&result.loss, sizeof result.loss);
  for (const auto& gradient : gradients_->tensors()) {
    add_to(digest, gradient.tensor);
  }

  result.grad_norm = gradients_->norm();
  step.scalar("grad_norm", result.grad_norm);
  gradients_->clip(result.grad_norm, config_.optimizer.clip);
  optimizer_->step(gradients_->tensors());
  model_->end_step();
  finish_routing(total, step);
  const std::vector<OptimizerEntry> entries = updated();
  step.parameters_updated(entries);
  for (const auto& entry : entries) {
    add_to(digest, entry.param);
  }
  result.digest = digest.text();
  return result;
}

}  // namespace ttrace::reference
