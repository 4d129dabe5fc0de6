#include "trainer.h"

#include "batch.h"
#include "cross_entropy.h"
#include "routing_step.h"

#include <ttrace/error.h>
#include <ttrace/log.h>

#include <ATen/ATen.h>
#include <xxhash.h>

#include <cstdio>
#include <utility>

namespace megatron_mini {

namespace {

at::ScalarType torch_type(Precision precision) {
  switch (precision) {
    case Precision::kF64:
      return at::kDouble;
    case Precision::kF32:
      return at::kFloat;
    case Precision::kBF16:
      return at::kBFloat16;
  }
  TTRACE_THROW(InternalError, "a precision without a torch type");
}

std::string short_text(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%g", value);
  return text;
}

std::vector<ttrace::NamedTensor> named(const std::vector<ModelParameter>& parameters,
                                       const std::vector<at::Tensor>& tensors) {
  std::vector<ttrace::NamedTensor> result;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    result.push_back({parameters[i].path, tensors[i]});
  }
  return result;
}

std::vector<at::Tensor> tensors_of(const std::vector<ModelParameter>& parameters) {
  std::vector<at::Tensor> result;
  for (const auto& parameter : parameters) {
    result.push_back(parameter.tensor);
  }
  return result;
}

std::uint64_t hash(const at::Tensor& tensor, std::uint64_t seed) {
  const at::Tensor whole = tensor.contiguous();
  return XXH3_64bits_withSeed(whole.const_data_ptr(), whole.nbytes(), seed);
}

std::uint64_t hash(const std::vector<at::Tensor>& tensors, std::uint64_t seed) {
  for (const auto& tensor : tensors) {
    seed = hash(tensor, seed);
  }
  return seed;
}

// One digest of the ranks' digests, the same on all of them.
std::uint64_t over_ranks(std::uint64_t digest, const Group& world) {
  const at::Tensor mine = at::full({1}, static_cast<std::int64_t>(digest), at::kLong);
  return hash(all_gather(mine, world), 0);
}

}  // namespace

Plan read_plan(const Options& options) {
  const Config config = load_config(options);
  const auto& model = config.model;
  auto annotations = ttrace::Annotations::load(options.annotations);
  annotations.size("v", model.vocabulary).size("g", model.gates());
  return {.options = options,
          .config = config,
          .text = TextData::load(config.data.file, model.sequence, model.vocabulary),
          .annotations = std::move(annotations)};
}

Trainer::Trainer(Plan plan, const Parallel& parallel)
    : plan_(std::move(plan)),
      parallel_(parallel),
      bugs_(plan_.options.bugs),
      session_(ttrace::Session::from_environment()) {
  const auto& config = plan_.config;
  check_divisible(config.model, parallel_);
  model_ = std::make_shared<GptModel>(Blueprint{.model = config.model,
                                                .parallel = parallel_,
                                                .bugs = bugs_,
                                                .loss = config.loss,
                                                .micro_batches = config.data.micro_batches});
  model_->to(torch_type(config.precision));

  const auto parameters = model_->model_parameters();
  const ttrace::Layout layout = layout_of(parallel_);
  ttrace::fill_parameters(
      named(parameters, tensors_of(parameters)), layout, plan_.annotations, config.data.seed);
  describe();
  session_.attach(*model_, layout, plan_.annotations);
  const auto replaced = session_.load_parameters();
  if (!replaced.empty()) {
    ttrace::log(ttrace::LogLevel::kWarning,
                ttrace::detail::concatenate(replaced.size(),
                                            " parameters did not start as the reference's and were "
                                            "replaced, first ",
                                            replaced.front()));
  }
}

void Trainer::describe() {
  const auto& model = plan_.config.model;
  const auto& data = plan_.config.data;
  ttrace::RunDescription description;
  description.model = {{"layers", std::to_string(model.layers)},
                       {"hidden", std::to_string(model.hidden)},
                       {"heads", std::to_string(model.heads)},
                       {"query_groups", std::to_string(model.query_groups)},
                       {"ffn", std::to_string(model.ffn)},
                       {"vocabulary", std::to_string(model.vocabulary)},
                       {"sequence", std::to_string(model.sequence)},
                       {"activation", name_of(model.activation)},
                       {"tied", model.tied ? "true" : "false"},
                       {"rotary_base", std::to_string(model.rotary_base)},
                       {"norm_epsilon", short_text(model.norm_epsilon)},
                       {"experts", std::to_string(model.experts)},
                       {"top_k", std::to_string(model.top_k)},
                       {"shared_expert", std::to_string(model.shared_expert)},
                       {"aux_loss", short_text(model.aux_loss)},
                       {"z_loss", short_text(model.z_loss)},
                       {"expert_bias", short_text(model.expert_bias)},
                       {"loss", name_of(plan_.config.loss)}};
  description.data = {{"seed", std::to_string(data.seed)},
                      {"micro_batch_size", std::to_string(data.micro_batch_size)},
                      {"micro_batches", std::to_string(data.micro_batches)},
                      {"documents", name_of(data.documents)},
                      {"masked", name_of(data.masked)},
                      {"digest", plan_.text.digest()}};
  description.precision = name_of(plan_.config.precision);
  if (parallel_.mixes_microbatches()) {
    // A gradient of an expert's parameter is then that of several micro-batches. Main gradients are
    // compared nevertheless.
    description.untraced = {R"(/param_grad/decoder\.layers\.\d+\.mlp\.experts\.)"};
  }
  session_.describe(std::move(description));
}

void Trainer::start() {
  auto parameters = model_->model_parameters();
  for (const auto& parameter : parameters) {
    broadcast(parameter.tensor.detach(),
              is_of_expert(parameter.role) ? parallel_.edp : parallel_.dp_cp,
              0);
  }
  gradients_.emplace(parameters, parallel_, bugs_);
  optimizer_.emplace(std::move(parameters), gradients_->views(), plan_.config.optimizer, bugs_);
  barrier(parallel_.world);
}

StepResult Trainer::train_step(std::int64_t iteration) {
  auto step = session_.step(iteration);
  gradients_->zero();
  const std::int64_t dp = parallel_.dp.size;
  const std::int64_t local_microbatches = plan_.config.data.micro_batches / dp;
  LossAddend mine;
  for (std::int64_t i = 0; i < local_microbatches; ++i) {
    const std::int64_t microbatch = i * dp + parallel_.dp.rank;
    const LossAddend addend = train_microbatch(step, iteration, microbatch);
    mine.loss += addend.loss;
    mine.tokens += addend.tokens;
    gradients_->accumulate(microbatch);
  }
  gradients_->reduce(plan_.config.loss);
  const LossAddend whole = sum_over_ranks(mine);
  if (plan_.config.loss == Loss::kPerToken) {
    gradients_->divide(whole.tokens);
  }
  step.gradients_reduced(named(gradients_->parameters(), gradients_->views()));

  StepResult result;
  result.grad_norm = gradients_->norm();
  result.loss = whole.loss;
  step.scalar("grad_norm", result.grad_norm);
  step.scalar("loss", result.loss);
  if (plan_.options.digest) {
    result.digest = hash(at::full({1}, result.loss, at::kDouble), 0);
    result.digest = hash(gradients_->views(), *result.digest);
  }
  gradients_->clip(result.grad_norm, plan_.config.optimizer.clip);
  optimizer_->step();
  auto entries = optimizer_->entries();
  if (plan_.config.model.experts > 1) {
    finish_routing(step);
    const auto biases = expert_biases(*model_);
    entries.insert(entries.end(), biases.begin(), biases.end());
  }
  step.parameters_updated(entries);
  if (plan_.options.digest) {
    result.digest =
        over_ranks(hash(tensors_of(gradients_->parameters()), *result.digest), parallel_.world);
  }
  return result;
}

void Trainer::finish_routing(ttrace::Step& step) {
  const auto& model = plan_.config.model;
  const RouterLosses losses = megatron_mini::finish_routing(
      *model_, model, plan_.config.data.micro_batches, parallel_, bugs_);
  if (model.aux_loss > 0.0) {
    step.scalar("aux_loss", losses.aux_loss);
  }
  if (model.z_loss > 0.0) {
    step.scalar("z_loss", losses.z_loss);
  }
}

Trainer::LossAddend Trainer::sum_over_ranks(const LossAddend& mine) const {
  const at::Tensor sums =
      all_reduce(at::tensor({mine.loss, mine.tokens}, at::kDouble), parallel_.dp_cp);
  LossAddend whole{.loss = sums[0].item<double>(), .tokens = sums[1].item<double>()};
  whole.loss /= plan_.config.loss == Loss::kPerToken
                    ? whole.tokens
                    : static_cast<double>(plan_.config.data.micro_batches);
  return whole;
}

Trainer::LossAddend Trainer::train_microbatch(ttrace::Step& step,
                                              std::int64_t iteration,
                                              std::int64_t index) {
  const auto& config = plan_.config;
  auto microbatch = step.microbatch(
      index, {.gradient_scale = config.loss == Loss::kMean ? 1.0 / parallel_.dp_cp.size : 1.0});
  const Batch whole =
      load_batch(plan_.text,
                 config.data,
                 {.seed = config.data.seed, .step = iteration, .microbatch = index, .sample = 0});
  const at::Tensor order =
      at::tensor(microbatch.permutation(config.data.micro_batch_size), at::kLong);
  const Batch batch = part_of_rank(reordered(whole, order), parallel_.cp);
  microbatch.data("tokens", batch.tokens);
  microbatch.data("labels", batch.labels);
  microbatch.data("loss_mask", batch.loss_mask);

  const at::Tensor logits = model_->forward(batch.tokens, batch.places);
  const VocabularyPart part{.first = logits.size(-1) * parallel_.tp.rank,
                            .logical = config.model.vocabulary};
  const at::Tensor per_token =
      cross_entropy(logits, batch.labels.t().contiguous(), part, parallel_.tp);  // [s, b]
  microbatch.loss(per_token);
  return go_backward(per_token, batch.loss_mask.t());
}

// Both [s, b].
Trainer::LossAddend Trainer::go_backward(const at::Tensor& per_token, const at::Tensor& loss_mask) {
  const double tokens = loss_mask.sum().item<double>();
  const at::Tensor sum = per_token.masked_fill(loss_mask.logical_not(), 0.0).sum();
  if (plan_.config.loss == Loss::kPerToken) {
    sum.backward();
    return {.loss = sum.item<double>(), .tokens = tokens};
  }
  // This rank's addend to the mean over the micro-batch's tokens that count.
  const at::Tensor loss =
      sum / all_reduce(at::full({1}, tokens, at::kDouble), parallel_.cp).item<double>();
  (loss * (parallel_.dp_cp.size / static_cast<double>(plan_.config.data.micro_batches))).backward();
  return {.loss = loss.item<double>(), .tokens = tokens};
}

}  // namespace megatron_mini
