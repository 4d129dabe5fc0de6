#include "trainer.h"

#include "error.h"
#include "fp8_histories.h"
#include "parts.h"
#include "routing_step.h"

#include <ttrace/log.h>
#include <ttrace/start_from.h>

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
    case Precision::kFP8:
      return at::kBFloat16;
  }
  fail<InternalError>("a precision has no torch type");
}

std::string short_text(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%g", value);
  return text;
}

std::string joined(const std::vector<std::int64_t>& numbers) {
  std::string text;
  for (const auto number : numbers) {
    text += (text.empty() ? "" : ",") + std::to_string(number);
  }
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

// What this rank has of the reduced gradients.
std::vector<ttrace::NamedTensor> named(const MainGradients& gradients) {
  std::vector<ttrace::NamedTensor> result;
  const auto tensors = gradients.reduced();
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const OwnedPart& part = gradients.parts()[i];
    result.push_back({gradients.parameters()[part.parameter].path, tensors[i], part.first});
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
  const at::Tensor whole = tensor.to(at::kCPU).contiguous();
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

// Says how a layer of a smaller TP degree than the others is cut.
void use_layer_axes(const Options& options, std::size_t layer, ttrace::Annotations& annotations) {
  const std::string path = "decoder.layers." + std::to_string(layer) + ".**";
  if (options.layer_dp) {
    for (const char* axis : kLayerAxes) {
      annotations.instead(axis, axis + std::to_string(options.layer_tp[layer]), path);
    }
    return;
  }
  for (const char* axis : {"tp", "kv", "kv_copy"}) {
    annotations.without(axis, path);
  }
}

}  // namespace

Plan read_plan(const Options& options, std::shared_ptr<const Parts> parts) {
  const Config config = load_config(options);
  const auto& model = config.model;
  auto annotations = ttrace::Annotations::load(options.annotations);
  annotations.size("v", model.vocabulary)
      .size("g", model.gates())
      .size("o", options.tp > 1 ? model.gates() : 1);
  for (std::size_t i = 0; i < options.layer_tp.size(); ++i) {
    if (options.layer_tp[i] < options.tp) {
      use_layer_axes(options, i, annotations);
    }
  }
  return {.options = options,
          .config = config,
          .text = TextData::load(config.data.file, model.sequence, model.vocabulary),
          .annotations = std::move(annotations),
          .parts = std::move(parts)};
}

Trainer::Trainer(Plan plan, const Parallel& parallel)
    : plan_(std::move(plan)), parallel_(parallel), session_(ttrace::Session::from_environment()) {
  plan_.config.precision = parse_precision(session_.precision(name_of(plan_.config.precision)));
  const auto& config = plan_.config;
  check_divisible(config.model, parallel_);
  Blueprint blueprint{.model = config.model,
                      .parallel = parallel_,
                      .parts = plan_.parts,
                      .recompute = plan_.options.recompute,
                      .layer_tp = plan_.options.layer_tp,
                      .loss = config.loss,
                      .micro_batches = config.data.micro_batches};
  before_forward_ = blueprint.before_forward;
  if (config.precision == Precision::kFP8) {
    blueprint.fp8 = config.fp8;
  }
  check_fp8(blueprint);
  check_layers(blueprint, config.data.micro_batch_size);
  model_ = std::make_shared<GptModel>(blueprint);
  model_->to(torch_type(config.precision));

  const auto parameters = model_->model_parameters();
  const auto named_parameters = named(parameters, tensors_of(parameters));
  const ttrace::Layout layout = layout_of(parallel_, config.model.query_groups);
  ttrace::fill_parameters(named_parameters, layout, plan_.annotations, config.data.seed);
  if (!config.start.empty()) {
    ttrace::start_from(config.start, named_parameters, layout, plan_.annotations);
  }
  describe();
  session_.attach(*model_, layout, plan_.annotations);
  const auto replaced = session_.load_parameters();
  if (!replaced.empty()) {
    ttrace::log(ttrace::LogLevel::kWarning,
                std::to_string(replaced.size()) +
                    " parameters differed from the reference's at the start and were replaced; the "
                    "first is " +
                    replaced.front());
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
                       {"loss", name_of(plan_.config.loss)},
                       {"fp8_recipe", name_of(plan_.config.fp8.recipe)},
                       {"fp8_history", std::to_string(plan_.config.fp8.history)},
                       {"fp8_bf16_ends", std::to_string(plan_.config.fp8.bf16_ends)}};
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
    const Group& same = parameter.ranks ? parameter.ranks->dp_cp : parallel_.dp_cp;
    broadcast(parameter.tensor.detach(), is_of_expert(parameter.role) ? parallel_.edp : same, 0);
    if (parameter.path.starts_with("embedding.")) {
      broadcast(parameter.tensor.detach(), parallel_.embedding, 0);
    }
  }
  const Parts& parts = *plan_.parts;
  gradients_ = parts.gradients(parameters, parallel_);
  if (parallel_.zero1) {
    gather_ = parts.gather(gradients_->parameters(), gradients_->buckets());
  }
  optimizer_ = parts.optimizer(
      gradients_->parameters(), gradients_->parts(), gradients_->reduced(), plan_.config.optimizer);
  barrier(parallel_.world);
}

ttrace::Step Trainer::begin_step(std::int64_t iteration) {
  if (!gather_due_) {
    return session_.step(iteration);
  }
  gather_due_ = false;
  gather_->start();
  return session_.step(iteration, {.gathered_later = gather_->paths()});
}

StepResult Trainer::train_step(std::int64_t iteration) {
  auto step = begin_step(iteration);
  if (iteration > 0) {  // else the optimizer keeps nothing yet
    step.states_before(optimizer_->entries(false));
  }
  if (gather_) {
    before_forward_->set(
        [&](const std::string& module) { step.parameters_gathered(gather_->await(module)); });
  }
  gradients_->zero(iteration);
  const LossAddend mine = train_microbatches(step, iteration);
  if (gather_) {
    step.parameters_gathered(gather_->finish());  // of modules that did not run
  }
  gradients_->reduce(plan_.config.loss);
  const LossAddend whole = sum_over_ranks(mine);
  if (plan_.config.loss == Loss::kPerToken) {
    gradients_->divide(whole.tokens);
  }
  step.gradients_reduced(named(*gradients_));

  StepResult result;
  result.grad_norm = gradients_->norm();
  result.loss = whole.loss;
  step.scalar("grad_norm", result.grad_norm);
  step.scalar("loss", result.loss);
  if (plan_.options.digest) {
    result.digest = hash(at::full({1}, result.loss, at::kDouble), 0);
    result.digest = hash(gradients_->reduced(), *result.digest);
  }
  gradients_->clip(result.grad_norm, plan_.config.optimizer.clip);
  update_parameters(step);
  if (plan_.options.digest) {
    result.digest = over_ranks(hash(optimizer_->values(), *result.digest), parallel_.world);
  }
  return result;
}

void Trainer::finish_routing(ttrace::Step& step) {
  const auto& model = plan_.config.model;
  const RouterLosses losses =
      megatron_mini::finish_routing(*model_, model, plan_.config.data.micro_batches, parallel_);
  if (model.aux_loss > 0.0) {
    step.scalar("aux_loss", losses.aux_loss);
  }
  if (model.z_loss > 0.0) {
    step.scalar("z_loss", losses.z_loss);
  }
}

void Trainer::update_parameters(ttrace::Step& step) {
  optimizer_->step();
  roll_histories();
  gather_due_ = gather_ != nullptr;
  if (gather_due_ && !plan_.options.overlap_gather) {
    gather_->start();
    static_cast<void>(gather_->finish());
    gather_due_ = false;
  }
  auto entries = optimizer_->entries(!gather_due_);
  if (plan_.config.model.experts > 1) {
    finish_routing(step);
    const auto biases = expert_biases(*model_);
    entries.insert(entries.end(), biases.begin(), biases.end());
  }
  step.parameters_updated(entries);
}

void Trainer::roll_histories() {
  roll_fp8_histories(*model_, parallel_);
}

Trainer::LossAddend Trainer::sum_over_ranks(const LossAddend& mine) const {
  // Stages before the last one have nothing to add.
  const at::Tensor sums = all_reduce(
      all_reduce(at::tensor({mine.loss, mine.tokens}, at::kDouble), parallel_.dp_cp), parallel_.pp);
  LossAddend whole{.loss = sums[0].item<double>(), .tokens = sums[1].item<double>()};
  whole.loss /= loss_divisor(whole.tokens);
  return whole;
}

double Trainer::loss_divisor(double tokens) const {
  return plan_.config.loss == Loss::kPerToken
             ? tokens
             : static_cast<double>(plan_.config.data.micro_batches);
}

Trainer::LossAddend Trainer::train_microbatches(ttrace::Step& step, std::int64_t iteration) {
  const StagePosition position{
      .stage = parallel_.pp.rank, .stages = parallel_.pp.size, .chunks = parallel_.chunks};
  Transfers transfers = make_transfers();
  std::map<std::int64_t, Running> running;
  LossAddend mine;
  for (const Task& task : schedule_of(position, local_microbatches())) {
    if (task.direction == Direction::kForward) {
      if (task.chunk == 0) {
        running.emplace(task.microbatch, begin_microbatch(step, iteration, task.microbatch));
      }
      const LossAddend addend = run_forward(task, running.at(task.microbatch), transfers);
      mine.loss += addend.loss;
      mine.tokens += addend.tokens;
      continue;
    }
    run_backward(task, running.at(task.microbatch), transfers);
    collect_gradients(task, running.at(task.microbatch));
    if (task.chunk == 0) {
      running.erase(task.microbatch);
    }
  }
  transfers.finish();
  return mine;
}

void Trainer::collect_gradients(const Task& task, const Running& running) {
  gradients_->accumulate(running.key.microbatch, task.chunk);
}

Transfers Trainer::make_transfers() const {
  const auto& config = plan_.config;
  const std::int64_t rows = config.model.sequence / parallel_.cp.size /
                            (parallel_.sequence_parallel ? parallel_.tp.size : 1);
  return {parallel_,
          model_->chunks(),
          local_microbatches(),
          {rows, config.data.micro_batch_size, config.model.hidden},
          at::TensorOptions(parallel_.device).dtype(torch_type(config.precision))};
}

Trainer::Running Trainer::begin_microbatch(ttrace::Step& step,
                                           std::int64_t iteration,
                                           std::int64_t number) {
  const auto& config = plan_.config;
  const std::int64_t index = number * parallel_.dp.size + parallel_.dp.rank;
  auto traced = step.microbatch(
      index, {.gradient_scale = config.loss == Loss::kMean ? 1.0 / parallel_.dp_cp.size : 1.0});
  const SampleKey key{
      .seed = config.data.seed, .step = iteration, .microbatch = index, .sample = 0};
  const Batch whole = load_batch(plan_.text, config.data, key);
  const at::Tensor order = at::tensor(traced.permutation(config.data.micro_batch_size), at::kLong);
  const Batch batch = moved_to(parallel_.device, part_of(reordered(whole, order)));
  if (parallel_.is_first_stage()) {
    traced.data("tokens", batch.tokens);
  }
  if (parallel_.is_last_stage()) {
    traced.data("labels", batch.labels);
    traced.data("loss_mask", batch.loss_mask);
  }
  return {.traced = std::move(traced),
          .key = key,
          .batch = batch,
          .chunks = std::vector<Passed>(static_cast<std::size_t>(parallel_.chunks))};
}

Batch Trainer::part_of(const Batch& whole) const {
  return part_of_rank(whole, parallel_.cp);
}

Trainer::LossAddend Trainer::run_forward(const Task& task, Running& running, Transfers& transfers) {
  const Transfers::Cargo cargo{.number = task.microbatch, .traced = running.traced};
  running.traced.resume();
  Passed& passed = running.chunks.at(static_cast<std::size_t>(task.chunk));
  if (!parallel_.begins(task.chunk)) {
    passed.input = transfers.receive_activation(task.chunk, cargo);
  }
  const at::Tensor output =
      model_->forward(passed.input.defined() ? passed.input : running.batch.tokens,
                      running.batch.places,
                      task.chunk);
  if (parallel_.ends(task.chunk)) {
    return take_loss(output, running, passed.output);
  }
  passed.output = output;
  transfers.send_activation(task.chunk, cargo, output);
  return {};
}

void Trainer::run_backward(const Task& task, Running& running, Transfers& transfers) {
  const Transfers::Cargo cargo{.number = task.microbatch, .traced = running.traced};
  running.traced.resume();
  Passed passed = std::exchange(running.chunks.at(static_cast<std::size_t>(task.chunk)), Passed());
  passed.output.backward(
      parallel_.ends(task.chunk) ? at::Tensor() : transfers.receive_gradient(task.chunk, cargo));
  if (!parallel_.begins(task.chunk)) {
    transfers.send_gradient(task.chunk, cargo, passed.input.grad());
  }
}

Trainer::LossAddend Trainer::take_loss(const at::Tensor& logits,
                                       Running& running,
                                       at::Tensor& to_minimise) {
  const at::Tensor per_token = loss_per_token(logits, running.batch);
  running.traced.loss(per_token);
  return reduce_loss(per_token, running.batch.loss_mask.t(), to_minimise);
}

VocabularyPart Trainer::vocabulary_part(const at::Tensor& logits) const {
  return {.first = logits.size(-1) * parallel_.tp.rank,
          .logical = plan_.config.model.vocabulary,
          .smoothing = plan_.config.model.label_smoothing};
}

at::Tensor Trainer::loss_per_token(const at::Tensor& logits, const Batch& batch) const {
  return cross_entropy(
      logits, batch.labels.t().contiguous(), vocabulary_part(logits), parallel_.tp);
}

// The tensors [s, b].
Trainer::LossAddend Trainer::reduce_loss(const at::Tensor& per_token,
                                         const at::Tensor& loss_mask,
                                         at::Tensor& to_minimise) {
  const double tokens = loss_mask.sum().item<double>();
  const at::Tensor sum = per_token.masked_fill(loss_mask.logical_not(), 0.0).sum();
  if (plan_.config.loss == Loss::kPerToken) {
    to_minimise = sum;
    return {.loss = sum.item<double>(), .tokens = tokens};
  }
  // This rank's addend to the mean over the micro-batch's tokens that count.
  const at::Tensor loss =
      sum / all_reduce(at::full({1}, tokens, at::kDouble), parallel_.cp).item<double>();
  to_minimise =
      loss * (parallel_.dp_cp.size / static_cast<double>(plan_.config.data.micro_batches));
  return {.loss = loss.item<double>(), .tokens = tokens};
}

}  // namespace megatron_mini
