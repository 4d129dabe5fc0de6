// The part of Capture that lists operators inside of modules, in a zoom pass.
#include "hooks/base/call_site.h"
#include "hooks/base/ivalue_tensors.h"
#include "hooks/capture/capture.h"
#include "hooks/capture/record_tensor.h"
#include "hooks/nudge/operator_effects.h"
#include "hooks/nudge/operator_name.h"

#include <ATen/SequenceNumber.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/view_as_real.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/function.h>

#include <algorithm>
#include <string>
#include <utility>

namespace ttrace {
namespace {

bool reads_wrapper(c10::ArrayRef<const c10::IValue> inputs) {
  bool found = false;
  for (const c10::IValue& input : inputs) {
    for_each_tensor(input, [&](const at::Tensor& tensor) {
      found = found || is_wrapper(tensor) || tensor.is_meta();
    });
  }
  return found;
}

// The node that the next operator of this thread makes; nothing where no graph is made.
std::optional<OperatorTrail::NodeKey> next_node() {
  return at::GradMode::is_enabled()
             ? std::optional(OperatorTrail::NodeKey(at::RecordFunction::currentThreadId(),
                                                    at::sequence_number::peek()))
             : std::nullopt;
}

// The node whose backward this thread runs.
std::optional<OperatorTrail::NodeKey> running_node() {
  const auto node = torch::autograd::get_current_node();
  return node ? std::optional(OperatorTrail::NodeKey(node->thread_id(), node->sequence_nr()))
              : std::nullopt;
}

// Whether the result of an operator that changes nothing is memory that it was given.
bool is_view(const at::Tensor& tensor, const TrailPlace& place) {
  return place.written.empty() && std::ranges::any_of(place.read, [&](const at::Tensor& read) {
           return storage_of(read) == storage_of(tensor);
         });
}

// Whether a view shows the same as an argument.
bool repeats(const at::Tensor& tensor, const TrailPlace& place) {
  return std::ranges::any_of(place.read, [&](const at::Tensor& read) {
    return storage_of(read) == storage_of(tensor) && read.sizes() == tensor.sizes() &&
           read.strides() == tensor.strides() && read.storage_offset() == tensor.storage_offset();
  });
}

}  // namespace

// The module of the target that is open on this thread, or null.
const std::string* Capture::zoomed_module() const {
  const OpenScope* scope = innermost_scope();
  const auto& modules = environment_.zoom->modules;
  if (scope == nullptr || scope->path == kWholeModel) {
    const auto outside = std::ranges::find(modules, kOutsideOfModules);
    if (outside != modules.end()) {
      return &*outside;
    }
  }
  for (; scope != nullptr; scope = scope->parent) {
    const auto found = std::ranges::find(modules, scope->path);
    if (found != modules.end()) {
      return &*found;
    }
  }
  return nullptr;
}

bool Capture::is_zoomed_moment() const {
  const MicrobatchPtr microbatch = current_microbatch();
  const ZoomTarget& target = *environment_.zoom;
  return step_ == target.step && !reduced_ && microbatch != nullptr &&
         (target.microbatch == kNoMicrobatch || target.microbatch == microbatch->index);
}

void Capture::list_call(const at::RecordFunction& function, bool is_operator, TrailPlace& place) {
  if (!is_zoomed_moment()) {
    return;
  }
  // Backward's own operators run with gradients off; with gradients on, a forward runs again.
  const bool again = in_backward() && at::GradMode::is_enabled() && innermost_scope() != nullptr;
  OperatorCall call{.name = function.name(), .recompute = again};
  call.backward = in_backward() && !again;
  if (call.backward) {
    const auto node = running_node();
    const auto maker = node ? trail_.maker_of(*node) : std::nullopt;
    if (!maker) {
      return;
    }
    call.forward = maker;
    call.module = trail_.find(*maker)->module;
    call.source = trail_.find(*maker)->source;
  } else {
    if (zoomed_module() == nullptr) {
      trail_.interrupt();
      return;
    }
    call.module = innermost_scope() == nullptr ? "" : innermost_scope()->path;
  }
  call.communicates = is_operator && communicates(call.name);
  call.is_function = !is_operator;
  place.covers = is_operator;
  place.call = trail_.add(std::move(call), call.backward ? std::nullopt : next_node());
}

void Capture::operator_begins(const at::RecordFunction& function,
                              bool is_operator,
                              const TrailPlace* parent,
                              TrailPlace& place) {
  place.covers = parent != nullptr && parent->covers;
  // A function of the program's with a backward of its own.
  const bool is_function = !is_operator && !in_backward() && at::GradMode::is_enabled();
  const bool is_listed = is_function || (is_operator && !effects_of(function).is_composed &&
                                         !reads_wrapper(function.inputs()));
  if (place.covers || !is_listed) {
    return;
  }
  contain([&] { list_call(function, is_operator, place); });
  if (!place.call) {
    return;
  }
  // Not under our lock: another thread may hold the interpreter's and wait for ours.
  std::string source = call_site();
  contain([&] {
    OperatorCall* const call = trail_.find(*place.call);
    if (call != nullptr && !source.empty()) {
      call->source = std::move(source);
    }
    if (call != nullptr && is_operator) {
      look_at(function, place);
    }
  });
}

void Capture::look_at(const at::RecordFunction& function, TrailPlace& place) {
  const OperatorEffects& effects = effects_of(function);
  const auto inputs = function.inputs();
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const bool is_written = effects.writes_argument(i);
    for_each_tensor(inputs[i], [&](const at::Tensor& tensor) {
      if (!tensor.has_storage()) {
        return;
      }
      place.read.push_back(tensor);
      if (is_written) {
        place.written.push_back(tensor);
      }
      if (!is_written || !effects.overwrites) {
        record_communicated(tensor);
        trail_.read(*place.call, tensor);
      }
    });
  }
}

// What a collective wrote is there once somebody reads it.
void Capture::record_communicated(const at::Tensor& tensor) {
  const auto maker = trail_.writer_of(tensor);
  if (maker && trail_.find(*maker)->communicates && trail_.find(*maker)->results.empty()) {
    record_operator(*maker, 0, tensor);
  }
}

void Capture::operator_ends(const at::RecordFunction& function, const TrailPlace& place) {
  contain([&] {
    OperatorCall* const call = trail_.find(*place.call);
    if (call == nullptr) {
      return;
    }
    const OperatorEffects& effects = effects_of(function);
    const bool has_values = !call->communicates && effects.material != Material::kMemory;
    int slot = 0;
    const auto returned = [&](const at::Tensor& tensor) {
      const bool is_there = tensor.defined() && tensor.has_storage();
      call->is_view = is_there && !call->communicates && is_view(tensor, place);
      if (call->is_view) {
        trail_.viewed(*place.call, tensor);
      } else if (is_there) {
        trail_.wrote(*place.call, tensor);
      }
      if (is_there && has_values && !(call->is_view && repeats(tensor, place))) {
        record_operator(*place.call, slot, tensor);
      }
      ++slot;
    };
    if (!effects.returns) {
      std::ranges::for_each(place.written, returned);
    }
    for (const c10::IValue& output : function.outputs()) {
      if (output.isTensor()) {
        returned(output.toTensor());
      } else {
        for_each_tensor(output, returned);
      }
    }
  });
}

void Capture::record_operator(std::size_t position, int slot, const at::Tensor& tensor) {
  const MicrobatchPtr microbatch = current_microbatch();
  // A trace has no complex numbers: it holds their two parts.
  const at::Tensor values =
      tensor.is_complex() ? at::view_as_real(tensor.detach().resolve_conj()) : tensor;
  if (microbatch == nullptr || !unreadable(values).empty()) {
    return;
  }
  OperatorCall& call = *trail_.find(position);
  const TensorId id =
      recorder_.next_id({call.backward ? Kind::kOperatorGrad : Kind::kOperator,
                         operator_path(environment_.zoom->modules.front(), call.name),
                         slot,
                         call.recompute},
                        microbatch.get());
  call.results.push_back(id);
  record_tensor(recorder_, id, values, {microbatch.get()});
}

void Capture::record_trail() {
  const std::vector<OperatorCall> calls = trail_.take();
  if (!environment_.zoom || environment_.zoom->step != step_ || environment_.pass == Pass::kNoise) {
    return;
  }
  const std::string text = to_text(calls);
  const auto* bytes = reinterpret_cast<const std::byte*>(text.data());
  recorder_.record(recorder_.next_id({Kind::kOperators, std::string(kOperatorsPath)}, nullptr),
                   TensorCopy{ElementType::kU8, {std::ssize(text)}, {bytes, bytes + text.size()}},
                   {});
}

}  // namespace ttrace
