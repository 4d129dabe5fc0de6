#include "hooks/capture/capture.h"

#include "hooks/base/ivalue_tensors.h"

#include <ttrace/error.h>
#include <ttrace/log.h>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <utility>

namespace ttrace {
namespace {

std::atomic<Capture*> active{nullptr};

bool is_in_place(std::string_view name) {
  return name.ends_with('_') && !name.ends_with("__");
}

// In-place operators whose gradient with respect to the old value equals that of the new one.
bool hands_gradient_on(std::string_view name) {
  return name == "aten::add_" || name == "aten::sub_";
}

at::Tensor first_tensor(const std::vector<c10::IValue>& outputs) {
  at::Tensor result;
  for (const c10::IValue& output : outputs) {
    for_each_tensor(output, [&](const at::Tensor& tensor) {
      if (!result.defined()) {
        result = tensor;
      }
    });
    if (result.defined()) {
      break;
    }
  }
  return result;
}

template <class Map>
void erase_expired(Map& map) {
  for (auto it = map.begin(); it != map.end();) {
    it = it->second.storage.expired() ? map.erase(it) : std::next(it);
  }
}

}  // namespace

bool in_backward() {
  constexpr int kNoGraphTask = -1;
  return torch::autograd::get_current_graph_task_id() != kNoGraphTask;
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
      forced_routing_(std::move(parts.forced_routing)),
      given_values_(std::move(parts.given_values)),
      recorder_(environment_, std::move(parts.layout), std::move(parts.annotations)) {
  if (environment_.pass == Pass::kNoise) {
    noise_.emplace(static_cast<std::uint64_t>(environment_.noise_seed));
  }
}

// --- steps and micro-batches -------------------------------------------------------------------

void Capture::watch_parameters() {
  std::set<const c10::TensorImpl*> seen;
  for (std::size_t i = 0; i < parameters_.all().size(); ++i) {
    const at::Tensor& tensor = parameters_.all()[i].tensor;
    // A weight registered under two names gets one gradient: the first name has it.
    if (!tensor.requires_grad() || !seen.insert(tensor.unsafeGetTensorImpl()).second) {
      continue;
    }
    const unsigned position = tensor.register_hook(
        [weak = weak_from_this(), index = static_cast<int>(i)](const at::Tensor& gradient) {
          at::Tensor result;  // undefined: the given one
          if (const auto self = weak.lock()) {
            self->contain([&] { result = self->parameter_gradient_arrived(index, gradient); });
          }
          return result;
        });
    parameter_hooks_.emplace_back(tensor, position);
  }
}

void Capture::release_parameters() {
  for (const auto& [tensor, position] : parameter_hooks_) {
    tensor.remove_hook(position);
  }
  parameter_hooks_.clear();
}

void Capture::begin_step(std::int64_t step, WriterThread* writer, const StepOptions& options) {
  {
    const std::lock_guard lock(mutex_);
    parameters_.refresh();
    recorder_.begin_step(step, writer);
    step_ = step;
    reduced_ = false;
    if (noise_) {
      noise_->set_casts_round(true);
    }
  }
  if (noise_) {
    noise_->begin_step(step);
  }
  contain([&] {
    for (const std::string& path : options.gathered_later) {
      TTRACE_CHECK(parameters_.named(path) != nullptr,
                   UsageError,
                   "StepOptions::gathered_later names '",
                   path,
                   "', which is no attached parameter.");
      being_gathered_.insert(path);
    }
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

void Capture::end_step() {
  contain([&] { settle_gradients(); });
  const std::lock_guard lock(mutex_);
  recorder_.end_step();
  open_.clear();
  by_graph_task_.clear();
  pending_.reset();
  produced_.clear();
  derived_.clear();
  slots_.clear();
  local_slots_.clear();
  gradients_.clear();
  collectives_.clear();
  being_gathered_.clear();
  sums_.clear();
  unforced_ = 0;
}

std::shared_ptr<MicrobatchState> Capture::open_microbatch(std::int64_t index,
                                                          double gradient_scale) {
  auto microbatch = std::make_shared<MicrobatchState>();
  microbatch->index = index;
  microbatch->gradient_scale = gradient_scale;
  contain([&] {
    commit_pending();
    open_.push_back(microbatch);
  });
  return microbatch;
}

void Capture::close_microbatch(const std::shared_ptr<MicrobatchState>& microbatch) {
  contain([&] {
    commit_pending();
    std::erase(open_, microbatch);
    for (auto it = produced_.begin(); it != produced_.end();) {
      std::erase_if(it->second, [&](const Produced& value) {
        return value.microbatch == microbatch || value.identity.storage.expired();
      });
      it = it->second.empty() ? produced_.erase(it) : std::next(it);
    }
    erase_expired(derived_);
    recorder_.flush();
  });
}

void Capture::use_microbatch(const std::shared_ptr<MicrobatchState>& microbatch) {
  contain([&] {
    const auto found = std::find(open_.begin(), open_.end(), microbatch);
    if (found != open_.end() && microbatch != open_.back()) {
      commit_pending();
      std::rotate(found, found + 1, open_.end());
    }
  });
}

std::shared_ptr<MicrobatchState> Capture::current_microbatch() const {
  const auto running = by_graph_task_.find(torch::autograd::get_current_graph_task_id());
  if (running != by_graph_task_.end()) {
    return running->second;
  }
  return open_.empty() ? nullptr : open_.back();
}

void Capture::data(const std::shared_ptr<MicrobatchState>& microbatch,
                   const std::string& name,
                   const at::Tensor& tensor) {
  contain([&] {
    commit_pending();
    const TensorId id = recorder_.next_id({Kind::kData, name}, microbatch.get());
    recorder_.record(id, tensor, {microbatch.get()});
  });
}

void Capture::loss(const std::shared_ptr<MicrobatchState>& microbatch,
                   const at::Tensor& per_token) {
  contain([&] {
    commit_pending();
    const TensorId id = recorder_.next_id({Kind::kLoss, "loss"}, microbatch.get());
    expect(watch(per_token, microbatch, false), id, Kind::kGradOutput);
    // What a loss function sums over ranks (of exponentials) is no addend of the loss.
    std::erase_if(sums_, [](const OpenSum& open) { return !open.backward && open.module.empty(); });
    recorder_.record(id, per_token, {microbatch.get()});
  });
}

void Capture::sent(const std::shared_ptr<MicrobatchState>& microbatch,
                   const std::string& path,
                   int slot,
                   const at::Tensor& tensor) {
  contain([&] {
    commit_pending();
    const TensorId id = recorder_.next_id({Kind::kSent, path, slot}, microbatch.get());
    recorder_.record(id, tensor, {microbatch.get()});
  });
}

void Capture::received(const std::shared_ptr<MicrobatchState>& microbatch,
                       const std::string& path,
                       int slot,
                       const at::Tensor& tensor) {
  contain([&] {
    commit_pending();
    const TensorId id = recorder_.next_id({Kind::kReceived, path, slot}, microbatch.get());
    if (slot == 0 && unreadable(tensor).empty()) {
      remember_produced({id}, TensorIdentity(tensor), microbatch, nullptr);
    }
    recorder_.record(id, tensor, {microbatch.get()});
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
    commit_pending();
    recorder_.record_scalar(name, value);
  });
}

void Capture::parameters_updated(const std::vector<OptimizerEntry>& entries) {
  contain([&] {
    for (const OptimizerEntry& entry : entries) {
      const std::pair<Kind, const at::Tensor*> tensors[] = {{Kind::kMaster, &entry.master},
                                                            {Kind::kExpAvg, &entry.exp_avg},
                                                            {Kind::kExpAvgSq, &entry.exp_avg_sq}};
      for (const auto& [kind, tensor] : tensors) {
        if (tensor->defined()) {
          record_whole_step(kind, entry.path, *tensor, entry.flat_first);
        }
      }
      if (entry.param.defined()) {
        const Parameter* const parameter = parameters_.named(entry.path);
        const bool is_whole =
            parameter == nullptr || entry.param.sizes() == parameter->tensor.sizes();
        record_whole_step(
            Kind::kParamNext, entry.path, entry.param, is_whole ? std::nullopt : entry.flat_first);
      }
    }
  });
}

void Capture::record_whole_step(Kind kind,
                                const std::string& path,
                                const at::Tensor& tensor,
                                const std::optional<std::int64_t>& flat_first) {
  const TensorId id = recorder_.next_id({kind, path}, nullptr);
  if (!flat_first) {
    if (given_values_ == nullptr || !unreadable(tensor).empty()) {
      return recorder_.record(id, tensor, {});
    }
    TensorCopy copy = copy_tensor(tensor);
    const auto bytes = given(id, copy, {});
    recorder_.record(id, std::move(copy), {});
    if (bytes) {
      overwrite_tensor(tensor.variable_data(), *bytes);
    }
    return;
  }
  const Parameter* const parameter = parameters_.named(path);
  TTRACE_CHECK(parameter != nullptr,
               UsageError,
               to_string(id),
               " is given as a flat shard of a parameter that was not attached; use the name that "
               "the attached module gives it.");
  const FlatShard flat{*flat_first, shape_of(parameter->tensor)};
  recorder_.record(id, tensor, {.flat = &flat});
}

// --- scopes ------------------------------------------------------------------------------------

OpenScope Capture::scope(std::string path) const {
  const bool is_leaf = modules_.is_leaf(path);
  return {.path = std::move(path), .leaf = is_leaf};
}

void Capture::derive(const std::string& path,
                     const std::string& field,
                     int slot,
                     const std::string& dims) {
  contain([&] { recorder_.derive(path, field, slot, dims); });
}

void Capture::scope_event() {
  contain([&] { commit_pending(); });
}

at::Tensor Capture::scope_input(const std::string& path,
                                int slot,
                                const at::Tensor& tensor,
                                const Rows* rows) {
  at::Tensor result = tensor;
  contain([&] {
    commit_pending();
    if (!in_microbatch()) {
      return;
    }
    const Spot spot{Kind::kInput, path, slot, in_backward()};
    if (!is_produced(spot, tensor, rows)) {
      result = record_value(spot, tensor, Kind::kGradInput, rows);
    }
  });
  return result;
}

bool Capture::is_produced(const Spot& spot, const at::Tensor& tensor, const Rows* rows) {
  const Produced* const source = unreadable(tensor).empty() ? producer_of(tensor) : nullptr;
  if (source != nullptr) {
    record_edges(spot, shape_of(tensor), rows, *source);
  }
  return source != nullptr;
}

std::int64_t Capture::scope_local(
    Kind kind, const std::string& path, int slot, const at::Tensor& local, bool has_gradient) {
  std::int64_t expected = Scope::kNoGradient;
  contain([&] {
    commit_pending();
    const Spot spot{kind, path, slot, in_backward()};
    const bool is_output = kind == Kind::kOutput;
    if (!in_microbatch() || (!is_output && is_produced(spot, local, nullptr))) {
      return;
    }
    const Microbatch microbatch = current_microbatch();
    const TensorId id = recorder_.next_id(spot, microbatch.get());
    Slot gradient;
    if (has_gradient) {
      gradient = std::make_shared<GradientSlot>();
      gradient->microbatch = microbatch;
      expected = std::ssize(local_slots_);
      local_slots_.push_back(gradient);
    }
    expect(gradient, id, is_output ? Kind::kGradOutput : Kind::kGradInput);
    if (is_output) {
      settle_sums(id, path, local.numel());
      if (unreadable(local).empty()) {
        remember_produced({id}, TensorIdentity(local), microbatch, std::move(gradient));
      }
    }
    recorder_.record(id, local, {microbatch.get()});
  });
  return expected;
}

void Capture::local_gradient(std::int64_t expected, const at::Tensor& gradient) {
  contain([&] {
    const auto index = static_cast<std::size_t>(expected);
    if (expected >= 0 && index < local_slots_.size()) {
      static_cast<void>(gradient_arrived(local_slots_[index], gradient, false));
    }
  });
}

// Rows of several micro-batches are as many values, on either end.
void Capture::record_edges(const Spot& spot,
                           const std::vector<std::int64_t>& shape,
                           const Rows* rows,
                           const Produced& source) {
  const Microbatch microbatch = current_microbatch();
  std::vector<TensorId> consumers;
  if (rows == nullptr) {
    consumers.push_back(recorder_.next_id(spot, microbatch.get()));
  } else {
    for (const RowPart& part : split_rows(*rows, shape, microbatch)) {
      consumers.push_back(recorder_.next_id(spot, part.microbatch.get()));
    }
  }
  for (const TensorId& consumer : consumers) {
    const auto producer =
        std::find_if(source.parts.begin(), source.parts.end(), [&](const TensorId& part) {
          return part.microbatch == consumer.microbatch;
        });
    if (producer != source.parts.end()) {
      recorder_.edge(consumer, *producer);
    }
  }
}

at::Tensor Capture::scope_output(const std::string& path,
                                 int slot,
                                 const at::Tensor& tensor,
                                 const Rows* rows) {
  at::Tensor result = tensor;
  contain([&] {
    commit_pending();
    if (in_microbatch()) {
      result =
          record_value({Kind::kOutput, path, slot, in_backward()}, tensor, Kind::kGradOutput, rows);
    }
  });
  return result;
}

at::Tensor Capture::scope_routing(const std::string& path,
                                  const at::Tensor& choices,
                                  const at::Tensor& margins) {
  at::Tensor result = choices;
  contain([&] {
    commit_pending();
    if (!in_microbatch()) {
      return;
    }
    TTRACE_CHECK(choices.scalar_type() == at::kLong && choices.dim() == margins.dim() + 1 &&
                     choices.sizes().slice(0, margins.sizes().size()) == margins.sizes(),
                 UsageError,
                 "Scope::routing of ",
                 path,
                 " was given choices that are no int64 tensor with one more dimension than the "
                 "margins; pass int64 [s, b, k] and [s, b].");
    const Microbatch microbatch = current_microbatch();
    const Spot spot{Kind::kRouting, path, kChoicesSlot, in_backward()};
    const TensorId id = recorder_.next_id(spot, microbatch.get());
    recorder_.record(id, choices, {microbatch.get()});
    recorder_.record(
        recorder_.next_id({Kind::kRouting, path, kMarginsSlot, in_backward()}, microbatch.get()),
        margins,
        {microbatch.get()});
    if (forced_routing_) {
      const auto placement = recorder_.place(id, shape_of(choices), {microbatch.get()});
      TTRACE_CHECK(placement,
                   UsageError,
                   "the samples of ",
                   to_string(id),
                   " were permuted and cannot be put back; annotate its `routing` with a dimension "
                   "b, for example \"s b k\".");
      result = forced_routing_->choices(id, *placement, choices);
    }
  });
  return result;
}

void Capture::scope_state(Spot spot, const at::Tensor& tensor) {
  contain([&] {
    commit_pending();
    if (!in_microbatch()) {
      return;
    }
    // Backward itself runs with gradients off; with gradients on, a forward runs again.
    spot.recompute = in_backward() && at::GradMode::is_enabled();
    const Microbatch microbatch = current_microbatch();
    recorder_.record(recorder_.next_id(spot, microbatch.get()), tensor, {microbatch.get()});
  });
}

at::Tensor Capture::record_value(const Spot& spot,
                                 const at::Tensor& tensor,
                                 Kind gradient_kind,
                                 const Rows* rows) {
  const Microbatch microbatch = current_microbatch();
  const bool readable = unreadable(tensor).empty();
  std::vector<RowPart> parts;
  TensorId id;
  if (rows == nullptr || !readable) {
    id = recorder_.next_id(spot, microbatch.get());
  } else {
    parts = split_rows(*rows, shape_of(tensor), microbatch);
    for (RowPart& part : parts) {
      part.value = recorder_.next_id(spot, part.microbatch.get());
    }
    id = parts.front().value;
  }
  const at::Tensor result =
      given_values_ != nullptr && readable ? forced_copy(id, parts, spot.kind, tensor) : tensor;
  // The gradient of an input is the sum over all its consumers, this one included.
  const Slot slot = watch(spot.kind == Kind::kInput ? tensor : result, microbatch, false);
  expect(slot, id, gradient_kind);
  if (spot.kind == Kind::kOutput && readable) {
    std::vector<TensorId> values;
    std::transform(parts.begin(), parts.end(), std::back_inserter(values), [](const RowPart& part) {
      return part.value;
    });
    if (values.empty()) {
      values.push_back(id);
    }
    remember_produced(std::move(values), TensorIdentity(result), microbatch, slot);
  }
  if (spot.kind == Kind::kOutput) {
    settle_sums(id, spot.path, tensor.numel());
  }
  if (parts.empty()) {
    recorder_.record(id, tensor, {microbatch.get()});
    return result;
  }
  record_rows(parts, spot.kind, copy_tensor(tensor), 0);
  if (slot != nullptr) {
    slot->rows = std::move(parts);
  }
  return result;
}

void Capture::record_rows(const std::vector<RowPart>& parts,
                          Kind kind,
                          const TensorCopy& copy,
                          std::uint64_t order) {
  for (const RowPart& part : parts) {
    TensorId id = part.value;
    id.kind = kind;
    id.recompute = id.recompute && (kind == Kind::kInput || kind == Kind::kOutput);
    recorder_.record(id,
                     select_rows(copy, part),
                     {.microbatch = part.microbatch.get(), .order = order, .rows = &part});
    order = 0;  // the first has the place that was kept
  }
}

void Capture::remember_produced(std::vector<TensorId> parts,
                                TensorIdentity identity,
                                const Microbatch& microbatch,
                                Slot gradient) {
  const void* storage = identity.storage._unsafe_get_target();
  produced_[storage].push_back(
      {std::move(parts), std::move(identity), microbatch, std::move(gradient)});
}

const Capture::Produced* Capture::producer_of(const at::Tensor& tensor) const {
  const auto known = produced_.find(storage_of(tensor));
  if (known == produced_.end()) {
    return nullptr;
  }
  const auto found =
      std::find_if(known->second.rbegin(), known->second.rend(), [&](const Produced& value) {
        return value.microbatch == current_microbatch() && value.identity.same_value(tensor);
      });
  return found == known->second.rend() ? nullptr : &*found;
}

// --- collectives -------------------------------------------------------------------------------

std::optional<TensorId> Capture::collective_begins(const CollectiveCall& call,
                                                   const at::Tensor& input) {
  if (call.size == 1) {
    return std::nullopt;
  }
  contain([&] { announce_sum(call, input); });
  if (!environment_.collectives) {
    return std::nullopt;
  }
  std::optional<TensorId> result;
  contain([&] {
    CollectiveCall kept = call;
    const OpenScope* scope = innermost_scope();
    kept.module = scope != nullptr ? scope->path : in_backward() ? "backward" : "";
    const std::string path = call.group + "." + std::to_string(collectives_[call.group]++);
    TensorId id = recorder_.next_id({Kind::kCollectiveInput, path}, nullptr);
    // What is pending stays so: a row-parallel linear sums over ranks before it adds its bias.
    recorder_.record(id, input, {});
    const std::string text = to_text(kept);
    const auto* bytes = reinterpret_cast<const std::byte*>(text.data());
    recorder_.record(
        recorder_.next_id({Kind::kCollectiveInput, path, kCollectiveCallSlot}, nullptr),
        {ElementType::kU8, {std::ssize(text)}, {bytes, bytes + text.size()}},
        {});
    id.kind = Kind::kCollectiveOutput;
    result = id;
  });
  return result;
}

std::optional<Capture::OpenSum> Capture::open_sum(const DispatchedSum& sum) const {
  const at::Tensor& first = sum.parts.front();
  const auto type = first.scalar_type();
  const bool is_summed = type == at::kBFloat16 || type == at::kHalf || type == at::kFloat ||
                         type == at::kDouble;  // codes of FP8 are sent, not added
  if (!in_microbatch() || !unreadable(first).empty() || !is_summed) {
    return std::nullopt;
  }
  const at::NoGradGuard no_grad;
  double squared = 0.0;
  for (const at::Tensor& part : sum.parts) {
    const double norm = part.norm(2, at::kDouble).item<double>() * sum.weight;
    squared += norm * norm;
  }
  const OpenScope* scope = innermost_scope();
  return OpenSum{in_backward(),
                 scope != nullptr && !in_backward() ? scope->path : "",
                 sum.elements,
                 {{}, element_type_of(first).value(), sum.ranks, squared}};
}

bool Capture::OpenSum::announces(const OpenSum& other) const {
  return announced && backward == other.backward && module == other.module &&
         elements == other.elements && sum.type == other.sum.type &&
         sum.addends == other.sum.addends;
}

void Capture::communication_begins(std::string_view name, c10::ArrayRef<const c10::IValue> inputs) {
  contain([&] {
    for (const DispatchedSum& sum : dispatched_sums(name, inputs)) {
      sum_begins(sum);
    }
  });
}

void Capture::sum_begins(const DispatchedSum& sum) {
  auto open = open_sum(sum);
  if (!open) {
    return;
  }
  const auto same = std::find_if(
      sums_.begin(), sums_.end(), [&](const OpenSum& known) { return known.announces(*open); });
  if (same != sums_.end()) {
    same->announced = false;
  } else {
    sums_.push_back(*std::move(open));
  }
}

void Capture::announce_sum(const CollectiveCall& call, const at::Tensor& input) {
  const bool scatters = call.operation == CollectiveOperation::kReduceScatter;
  if ((!scatters && call.operation != CollectiveOperation::kAllReduce) ||
      call.reduction == CollectiveReduction::kMax) {
    return;
  }
  const bool is_average = call.reduction == CollectiveReduction::kAverage;
  auto open = open_sum({{input},
                        scatters ? input.numel() / call.size : input.numel(),
                        call.size,
                        is_average ? 1.0 / call.size : 1.0});
  if (open) {
    open->announced = true;
    sums_.push_back(*std::move(open));
  }
}

void Capture::settle_sums(const TensorId& id, const std::string& module, std::int64_t elements) {
  std::erase_if(sums_, [&, backward = in_backward()](OpenSum& open) {
    if (open.backward != backward || open.module != module || open.elements != elements) {
      return false;
    }
    open.sum.id = id;
    recorder_.sum(open.sum);
    return true;
  });
}

void Capture::collective_ends(const TensorId& id, const at::Tensor& output) {
  contain([&] {
    if (id.step == step_) {
      recorder_.record(id, output, {});
    }
  });
}

// --- operators ---------------------------------------------------------------------------------

void Capture::inspect(c10::ArrayRef<c10::IValue> inputs, OperatorInputs& result) {
  contain([&] {
    bool others = false;
    for (const c10::IValue& input : inputs) {
      for_each_tensor(input, [&](const at::Tensor& tensor) {
        if (!tensor.has_storage()) {
          others = true;
          return;
        }
        result.storages.push_back(storage_of(tensor));
        if (reduced_ || parameters_.find(tensor, result.parameters)) {
          return;
        }
        const auto derived = derived_.find(storage_of(tensor));
        if (derived != derived_.end() && !derived->second.storage.expired()) {
          result.parameters.append(derived->second.parameters);
        } else if (!tensor.unsafeGetTensorImpl()->is_wrapped_number()) {
          others = true;
        }
      });
    }
    result.only_parameters = !others && !result.parameters.empty();
    const bool may_be_a_module = others && !result.parameters.empty();
    if (pending_ && (may_be_a_module || given_values_ != nullptr)) {
      const auto module = owner_of(result.parameters);
      if (!module || !continues(*module, result, current_microbatch(), in_backward())) {
        commit_pending();  // before this operator sees the result
      }
    }
    if (may_be_a_module && !noise_ && !in_backward()) {
      result.producer = producer_among(inputs);
    }
  });
}

void Capture::operator_finished(std::string_view name,
                                const OperatorInputs& inputs,
                                const std::vector<c10::IValue>& outputs) {
  if (inputs.parameters.empty() && !is_in_place(name)) {
    return;  // most operators: no lock
  }
  contain([&] {
    // Backward's own operators run with gradients off; with gradients on, a forward runs again.
    if (reduced_ || (in_backward() && !at::GradMode::is_enabled())) {
      return;
    }
    if (inputs.only_parameters) {
      remember_derived(inputs.parameters, outputs);
      return;
    }
    const at::Tensor output = first_tensor(outputs);
    if (!output.defined() || !in_microbatch()) {
      return;
    }
    const OpenScope* scope = innermost_scope();
    if (!inputs.parameters.empty() && (scope == nullptr || !scope->leaf) &&
        output.is_floating_point() && !parameters_.is_parameter_memory(output)) {
      if (const auto module = owner_of(inputs.parameters)) {
        offer_output(*module, inputs, output);
        return;
      }
    }
    if (is_in_place(name)) {
      follow_in_place(name, output);
    }
  });
}

std::optional<TensorId> Capture::producer_among(c10::ArrayRef<c10::IValue> inputs) const {
  std::optional<TensorId> result;
  for (const c10::IValue& input : inputs) {
    for_each_tensor(input, [&](const at::Tensor& tensor) {
      if (!result && tensor.has_storage() && unreadable(tensor).empty()) {
        const Produced* const source = producer_of(tensor);
        if (source != nullptr && source->parts.size() == 1) {
          result = source->parts.front();
        }
      }
    });
  }
  return result;
}

std::optional<std::string> Capture::owner_of(const ParameterIndices& parameters) const {
  std::optional<std::string> result;
  const OpenScope* scope = innermost_scope();
  for (const int index : parameters) {
    const std::string& module = parameters_.all()[static_cast<std::size_t>(index)].module;
    if (module.empty() || !modules_.is_object(module) || !modules_.is_leaf(module)) {
      continue;
    }
    // Tied weights belong to several modules: the one inside the open scope is running.
    if (scope != nullptr && module.starts_with(scope->path + ".")) {
      return module;
    }
    if (!result) {
      result = module;
    }
  }
  return result;
}

void Capture::remember_derived(const ParameterIndices& parameters,
                               const std::vector<c10::IValue>& outputs) {
  for (const c10::IValue& output : outputs) {
    for_each_tensor(output, [&](const at::Tensor& tensor) {
      ParameterIndices itself;
      if (tensor.has_storage() && !parameters_.find(tensor, itself)) {
        derived_.insert_or_assign(storage_of(tensor), Derived{weak_storage(tensor), parameters});
      }
    });
  }
}

void Capture::follow_in_place(std::string_view name, const at::Tensor& output) {
  if (!unreadable(output).empty()) {
    return;
  }
  Slot slot;
  if (pending_ && pending_->identity.same_place(output)) {
    slot = pending_->gradient;
  } else if (const auto found = produced_.find(storage_of(output)); found != produced_.end()) {
    for (const Produced& value : found->second) {
      if (value.identity.same_place(output)) {
        slot = value.gradient;
      }
    }
  }
  if (slot == nullptr) {
    return;
  }
  slot->transparent = slot->transparent && hands_gradient_on(name);
  if (slot->transparent && output.requires_grad() && at::GradMode::is_enabled()) {
    hook(output, slot, true);
  }
}

bool Capture::continues(const std::string& module,
                        const OperatorInputs& inputs,
                        const Microbatch& microbatch,
                        bool recompute) const {
  if (!pending_ || pending_->module != module || pending_->microbatch != microbatch ||
      pending_->recompute != recompute) {
    return false;
  }
  const auto contains = [](const auto& list, const auto& item) {
    return std::find(list.begin(), list.end(), item) != list.end();
  };
  // A parameter that is used again begins the next call: linear(linear(x)).
  const bool again = std::any_of(inputs.parameters.begin(),
                                 inputs.parameters.end(),
                                 [&](int index) { return contains(pending_->used, index); });
  return !again && contains(inputs.storages, pending_->identity.storage._unsafe_get_target());
}

void Capture::offer_output(const std::string& module,
                           const OperatorInputs& inputs,
                           const at::Tensor& output) {
  const std::string reason = unreadable(output);
  if (!reason.empty()) {
    recorder_.note("an output of " + module + " " + reason + " and was not recorded.");
    return;
  }
  const Microbatch microbatch = current_microbatch();
  const bool recompute = in_backward();
  ParameterIndices used = inputs.parameters;
  std::optional<TensorId> producer = inputs.producer;
  if (continues(module, inputs, microbatch, recompute)) {
    used.append(pending_->used);
    producer = pending_->producer;
    if (pending_->gradient != nullptr) {
      pending_->gradient->discarded = true;
    }
    pending_.reset();
  } else {
    commit_pending();
  }
  pending_.emplace(Pending{module,
                           std::move(used),
                           given_values_ != nullptr ? output : at::Tensor(),
                           TensorIdentity(output),
                           copy_tensor(output),
                           microbatch,
                           recompute,
                           watch(output, microbatch, true),
                           std::move(producer)});
}

void Capture::commit_pending() {
  if (!pending_) {
    return;
  }
  Pending pending = std::move(*pending_);
  pending_.reset();
  const TensorId id = recorder_.next_id({Kind::kOutput, pending.module, 0, pending.recompute},
                                        pending.microbatch.get());
  expect(pending.gradient, id, Kind::kGradOutput);
  if (pending.producer) {
    TensorId consumer = id;
    consumer.kind = Kind::kInput;
    recorder_.edge(consumer, *pending.producer);
  }
  remember_produced({id}, std::move(pending.identity), pending.microbatch, pending.gradient);
  if (const auto bytes = given(id, pending.copy, {pending.microbatch.get(), true})) {
    overwrite_tensor(pending.result.variable_data(), *bytes);
  }
  recorder_.record(id, std::move(pending.copy), {pending.microbatch.get(), true});
}

}  // namespace ttrace
