// The part of Capture that follows steps and micro-batches.
#include "hooks/capture/capture.h"

#include "hooks/base/take_snapshot.h"
#include "hooks/capture/record_tensor.h"

#include <ttrace/error.h>

#include <ATen/SavedTensorHooks.h>
#include <ATen/SequenceNumber.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <utility>

namespace ttrace {
namespace {

std::atomic<Capture*> active{nullptr};

constexpr std::uint64_t kSeedOfCodes = 1;

// Where a program that trains these may draw random numbers.
std::vector<c10::Device> devices_of(const ParameterMap& parameters) {
  std::vector<c10::Device> devices = {c10::Device(c10::DeviceType::CPU)};
  for (const Parameter& parameter : parameters.all()) {
    if (std::ranges::find(devices, parameter.tensor.device()) == devices.end()) {
      devices.push_back(parameter.tensor.device());
    }
  }
  return devices;
}

}  // namespace

bool in_backward() {
  constexpr int kNoGraphTask = -1;
  return torch::autograd::get_current_graph_task_id() != kNoGraphTask;
}

// Checkpointing that keeps a graph saves tensors by hooks of its own for each part; the kind
// without a graph runs each part with gradients off, after it has made the part's node.
ForwardRun forward_run() {
  if (in_backward()) {
    const auto node = torch::autograd::get_current_node();
    return {.again = true,
            .part = node == nullptr ? 0 : node->sequence_nr(),
            .pass = torch::autograd::get_current_graph_task_id()};
  }
  if (const auto hooks = at::SavedTensorDefaultHooks::get_hooks()) {
    const c10::SafePyObject& unpack = hooks->second;
    return {.part = reinterpret_cast<std::uintptr_t>(unpack.ptr(&unpack.pyinterpreter()))};
  }
  return {.part = at::GradMode::is_enabled() ? 0 : 1 + at::sequence_number::peek()};
}

Capture* active_capture() noexcept {
  return active.load(std::memory_order_acquire);
}
void set_active_capture(Capture* capture) noexcept {
  active.store(capture, std::memory_order_release);
}

Capture::Capture(Parts parts, std::shared_ptr<Failure> failure)
    : environment_(std::move(parts.environment)),
      failure_(std::move(failure)),
      modules_(std::move(parts.modules)),
      parameters_(std::move(parts.parameters)),
      followed_(std::move(parts.followed)),
      recorder_(environment_,
                std::move(parts.layout),
                std::move(parts.annotations),
                std::move(parts.simulated)),
      replacement_(std::move(parts.given_values), recorder_),
      producers_(recorder_),
      gradients_(recorder_),
      leaves_({modules_, parameters_, recorder_, producers_, gradients_, replacement_}) {
  if (environment_.pass == Pass::kNoise && environment_.noise_seed > 0) {
    noise_.emplace(static_cast<std::uint64_t>(environment_.noise_seed), recorder_.world_size());
    recorder_.set_origins(&origins_);
    for (const at::Tensor& buffer : parts.buffers) {
      origins_.set_if_new(buffer, Origin::kKnown);
    }
  }
  if (parts.moves_codes) {
    noise_of_codes_.emplace(kSeedOfCodes, recorder_.world_size());
  }
}

// --- steps -------------------------------------------------------------------------------------

void Capture::begin_step(std::int64_t step,
                         const StepClock& clock,
                         WriterThread* writer,
                         const std::vector<std::string>& gathered_later) {
  begin_scope_epoch();
  {
    const std::lock_guard lock(mutex_);
    parameters_.refresh();
    recorder_.begin_step(step, clock, writer);
    step_ = step;
    reduced_ = false;
    draws_ = 0;
    generators_.emplace(devices_of(parameters_), c10::ArrayRef<at::Generator>());
    updated_ = false;
    has_gradients_ = false;
    has_codes_ = false;
    has_scales_ = false;
    if (noise_) {
      noise_->set_casts_round(true);
    }
  }
  for (auto* const noise : {&noise_, &noise_of_codes_}) {
    if (*noise) {
      (*noise)->begin_step(step);
    }
  }
  contain([&] {
    for (const std::string& path : gathered_later) {
      TTRACE_CHECK(
          parameters_.named(path) != nullptr,
          UsageError,
          "StepOptions::gathered_later names '",
          path,
          "', which is not an attached parameter; use the name that the attached module gives it");
      being_gathered_.insert(path);
    }
    for (auto& [path, own] : own_start_) {
      recorder_.record(recorder_.next_id({Kind::kStart, path}, nullptr), std::move(own), {});
    }
    own_start_.clear();
    for (const Parameter& parameter : parameters_.all()) {
      if (!being_gathered_.contains(parameter.path)) {
        record_whole_step(Kind::kParam, parameter.path, parameter.tensor);
      }
    }
  });
}

void Capture::parameters_gathered(const std::vector<std::string>& paths) {
  contain([&] {
    for (const std::string& path : paths) {
      if (being_gathered_.erase(path) > 0) {
        record_whole_step(Kind::kParam, path, parameters_.named(path)->tensor);
      }
    }
  });
}

void Capture::gradients_reduced(const std::vector<NamedTensor>& main_grads) {
  contain([&] {
    settle_gradients();
    reduced_ = true;
    if (noise_) {
      noise_->set_casts_round(false);
    }
    for (const NamedTensor& item : main_grads) {
      record_whole_step(Kind::kMainGrad, item.path, item.tensor, item.flat_first);
    }
  });
}

void Capture::scalar(const std::string& name, double value) {
  contain([&] {
    leaves_.commit();
    recorder_.record_scalar(name, value);
  });
}

void Capture::note(const std::string& sentence) {
  contain([&] { recorder_.note(sentence); });
}

void Capture::not_seen(const NotSeen& fact) {
  contain([&] { recorder_.not_seen(fact); });
}

void Capture::code(CodeRole role, const std::string& path, const std::string& text) {
  contain([&] { recorder_.code(role, path, text); });
}

void Capture::parameters_updated(const std::vector<OptimizerEntry>& entries) {
  contain([&] {
    updated_ = true;
    for (const OptimizerEntry& entry : entries) {
      record_updated(entry);
    }
  });
}

void Capture::record_updated(const OptimizerEntry& entry) {
  const std::pair<Kind, const at::Tensor*> tensors[] = {{Kind::kMaster, &entry.master},
                                                        {Kind::kExpAvg, &entry.exp_avg},
                                                        {Kind::kExpAvgSq, &entry.exp_avg_sq}};
  for (const auto& [kind, tensor] : tensors) {
    if (tensor->defined()) {
      record_whole_step(kind, entry.path, *tensor, entry.flat_first);
    }
  }
  for (const auto& [name, tensor] : entry.states) {
    record_state(Kind::kState, entry, name, tensor);
  }
  if (entry.param.defined()) {
    const Parameter* const parameter = parameters_.named(entry.path);
    const bool is_whole = parameter == nullptr || entry.param.sizes() == parameter->tensor.sizes();
    record_whole_step(
        Kind::kParamNext, entry.path, entry.param, is_whole ? std::nullopt : entry.flat_first);
  }
  for (const auto& [name, tensor] : entry.copies) {
    record_state(Kind::kCopy, entry, name, tensor);
  }
}

void Capture::record_state(Kind kind,
                           const OptimizerEntry& entry,
                           const std::string& name,
                           const at::Tensor& tensor) {
  const TensorId id = recorder_.next_id({kind, entry.path + "." + name}, nullptr);
  const Parameter* const parameter = parameters_.named(entry.path);
  const bool is_like_parameter =
      parameter != nullptr && tensor.sizes() == parameter->tensor.sizes();
  if (is_like_parameter) {
    record_placed(id, tensor, {.like = &entry.path});
    return;
  }
  // One number is a counter, unless the optimizer keeps it of every element.
  const bool is_of_elements = tensor.numel() > 1 || name == name_of(Kind::kMaster) ||
                              name == name_of(Kind::kExpAvg) || name == name_of(Kind::kExpAvgSq);
  const bool is_flat = parameter != nullptr && entry.flat_first && tensor.dim() == 1 &&
                       is_of_elements &&
                       *entry.flat_first + tensor.numel() <= parameter->tensor.numel();
  if (!is_flat) {
    record_placed(id, tensor, {});
    return;
  }
  const FlatShard shard{*entry.flat_first, shape_of(parameter->tensor)};
  record_placed(id, tensor, {.flat = &shard, .like = &entry.path});
}

void Capture::buffers(const std::vector<NamedTensor>& buffers) {
  contain([&] {
    for (const NamedTensor& item : buffers) {
      record_placed(recorder_.next_id({Kind::kBuffer, item.path}, nullptr), item.tensor, {});
    }
  });
}

// Later steps begin with what the step before is recorded to leave, and iteration 0 with nothing.
void Capture::states_before(const std::vector<OptimizerEntry>& entries,
                            const std::vector<NamedTensor>& buffers) {
  contain([&] {
    if (step_ != environment_.first_step || step_ == 0) {
      return;
    }
    for (const OptimizerEntry& entry : entries) {
      const std::pair<Kind, const at::Tensor*> own[] = {{Kind::kMaster, &entry.master},
                                                        {Kind::kExpAvg, &entry.exp_avg},
                                                        {Kind::kExpAvgSq, &entry.exp_avg_sq}};
      for (const auto& [kind, tensor] : own) {
        if (tensor->defined()) {
          record_state(Kind::kStateBefore, entry, std::string(name_of(kind)), *tensor);
        }
      }
      for (const auto& [name, tensor] : entry.states) {
        record_state(Kind::kStateBefore, entry, name, tensor);
      }
    }
    for (const NamedTensor& item : buffers) {
      record_placed(recorder_.next_id({Kind::kStateBefore, item.path}, nullptr), item.tensor, {});
    }
  });
}

void Capture::record_whole_step(Kind kind,
                                const std::string& path,
                                const at::Tensor& tensor,
                                const std::optional<std::int64_t>& flat_first) {
  const TensorId id = recorder_.next_id({kind, path}, nullptr);
  if (!flat_first) {
    record_placed(id, tensor, {});
    return;
  }
  const Parameter* const parameter = parameters_.named(id.path);
  TTRACE_CHECK(parameter != nullptr,
               UsageError,
               to_string(id),
               " is a flat shard of a parameter that was not attached; use the name that the "
               "attached module gives it");
  const FlatShard flat{*flat_first, shape_of(parameter->tensor)};
  record_placed(id, tensor, {.flat = &flat});
}

// A pass that replaces values leaves those that the next step begins with.
void Capture::record_placed(const TensorId& id,
                            const at::Tensor& tensor,
                            const Recorder::Options& options) {
  if (!replacement_.active() || options.flat != nullptr || !unreadable(tensor).empty()) {
    record_tensor(recorder_, id, tensor, options);
    return;
  }
  TensorCopy own = snapshot(tensor).take();
  const auto bytes = replacement_.of(id, own, options);
  recorder_.record(id, std::move(own), options);
  if (bytes) {
    overwrite_tensor(tensor.variable_data(), *bytes);
  }
}

void Capture::end_step() {
  contain([&] {
    settle_gradients();
    record_trail();
    look_for_unseen_draws();
    look_for_unseen_scales();
    state_unseen_updates();
  });
  const std::lock_guard lock(mutex_);
  recorder_.end_step();
  microbatches_.clear();
  leaves_.clear();
  latest_.clear();
  producers_.clear();
  gradients_.clear();
  activation_hooks_.remove_from_leaves();
  sums_.clear();
  settled_.reset();
  replacement_.end_step();
  collectives_.clear();
  being_gathered_.clear();
}

void Capture::state_unseen_updates() {
  if (!has_gradients_ || (reduced_ && updated_)) {
    return;
  }
  recorder_.not_seen(
      {NotSeenKind::kUpdates,
       reduced_ ? "the updated parameters were not given: the optimizer's update was not compared"
                : "no optimizer is attached, or none made a step: reduced gradients and updates "
                  "were not compared"});
}

// --- micro-batches -----------------------------------------------------------------------------

MicrobatchPtr Capture::current_microbatch() const {
  return microbatches_.current(torch::autograd::get_current_graph_task_id());
}

Moment Capture::now() const {
  return {current_microbatch(), forward_run()};
}

MicrobatchPtr Capture::open_microbatch(std::int64_t index, double gradient_scale) {
  auto microbatch = std::make_shared<MicrobatchState>();
  microbatch->index = index;
  microbatch->gradient_scale = gradient_scale;
  contain([&] {
    leaves_.commit();
    microbatches_.open(microbatch);
  });
  return microbatch;
}

void Capture::close_microbatch(const MicrobatchPtr& microbatch) {
  contain([&] {
    leaves_.commit();
    microbatches_.close(microbatch);
    producers_.forget(microbatch);
    leaves_.forget_expired();
    recorder_.flush();
  });
}

void Capture::use_microbatch(const MicrobatchPtr& microbatch) {
  contain([&] {
    if (microbatches_.use(microbatch)) {
      leaves_.commit();
    }
  });
}

void Capture::record_in(const MicrobatchPtr& microbatch,
                        const Spot& spot,
                        const at::Tensor& tensor) {
  const TensorId id = recorder_.next_id(spot, microbatch.get());
  record_tensor(recorder_, id, tensor, {microbatch.get()});
}

void Capture::data(const MicrobatchPtr& microbatch,
                   const std::string& name,
                   const at::Tensor& tensor) {
  given(tensor);
  contain([&] {
    leaves_.commit();
    record_in(microbatch, {Kind::kData, name}, tensor);
  });
}

void Capture::loss(const MicrobatchPtr& microbatch, const at::Tensor& per_token) {
  contain([&] {
    leaves_.commit();
    const TensorId id = recorder_.next_id({Kind::kLoss, "loss"}, microbatch.get());
    gradients_.expect(watch(per_token, microbatch, false), id, Kind::kGradOutput);
    sums_.forget_outside_of_scopes();
    record_tensor(recorder_, id, per_token, {microbatch.get()});
  });
}

void Capture::sent(const MicrobatchPtr& microbatch,
                   const std::string& path,
                   int slot,
                   const at::Tensor& tensor) {
  contain([&] {
    leaves_.commit();
    record_in(microbatch, {Kind::kSent, path, slot}, tensor);
    bind_backward(tensor, microbatch);
  });
}

void Capture::received(const MicrobatchPtr& microbatch,
                       const std::string& path,
                       int slot,
                       const at::Tensor& tensor) {
  contain([&] {
    leaves_.commit();
    const TensorId id = recorder_.next_id({Kind::kReceived, path, slot}, microbatch.get());
    if (slot == 0 && unreadable(tensor).empty()) {
      producers_.remember({{id}, TensorIdentity(tensor), microbatch, nullptr});
    }
    record_tensor(recorder_, id, tensor, {microbatch.get()});
  });
}

}  // namespace ttrace
