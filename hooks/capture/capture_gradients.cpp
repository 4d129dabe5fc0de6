// The part of Capture that waits for gradients and records them.
#include "hooks/capture/capture.h"

#include <ttrace/log.h>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/graph_task.h>

#include <utility>

namespace ttrace {

Capture::Slot Capture::watch(const at::Tensor& tensor,
                             const Microbatch& microbatch,
                             bool inferred) {
  if (!tensor.defined() || !tensor.requires_grad() || !at::GradMode::is_enabled()) {
    return nullptr;
  }
  auto slot = std::make_shared<GradientSlot>();
  slot->microbatch = microbatch;
  slot->inferred = inferred;
  hook(tensor, slot, false);
  return slot;
}

void Capture::hook(const at::Tensor& tensor, const Slot& slot, bool fallback) {
  static_cast<void>(
      tensor.register_hook([weak = weak_from_this(), slot, fallback](const at::Tensor& gradient) {
        at::Tensor result;  // undefined: the given one
        if (const auto self = weak.lock()) {
          self->contain([&] { result = self->gradient_arrived(slot, gradient, fallback); });
        }
        return result;
      }));
}

void Capture::expect(const Slot& slot, const TensorId& value, Kind gradient_kind) {
  if (slot == nullptr) {
    return;
  }
  slot->value = value;
  slot->id = value;
  slot->id.kind = gradient_kind;
  slot->id.recompute = false;  // wherever the hook sits, a gradient comes once
  slots_.push_back(slot);
}

at::Tensor Capture::gradient_arrived(const Slot& slot, const at::Tensor& gradient, bool fallback) {
  commit_pending();  // may be what gives the slot its id
  if (!gradient.defined() || reduced_ || slot->discarded || slot->recorded ||
      slot->id.path.empty() || slot->id.step != step_) {
    return {};
  }
  if (in_backward()) {  // parameters' gradients and recomputed forwards follow in this task
    by_graph_task_[torch::autograd::get_current_graph_task_id()] = slot->microbatch;
  }
  const bool readable = unreadable(gradient).empty();
  if (fallback) {
    if (!readable || !recorder_.wants(slot->id)) {
      return {};
    }
    slot->fallback = copy_tensor(gradient);
    slot->fallback_order = recorder_.take_order();
    return forced_gradient(*slot, *slot->fallback, gradient);
  }
  // In a forced pass what arrives after a fallback is the candidate's already.
  std::optional<TensorCopy> own =
      given_values_ != nullptr ? std::move(slot->fallback) : std::nullopt;
  slot->recorded = true;
  slot->fallback.reset();
  if (!readable) {
    if (gradients_.insert(slot->id).second) {
      recorder_.record(slot->id, gradient, {slot->microbatch.get(), slot->inferred});
    }
    return {};
  }
  settle_sums(slot->id, "", gradient.numel());
  TensorCopy copy = own ? *std::move(own) : copy_tensor(gradient);
  at::Tensor result = forced_gradient(*slot, copy, gradient);
  if (!gradients_.insert(slot->id).second) {
    return result;
  }
  if (slot->rows.empty()) {
    recorder_.record(slot->id, std::move(copy), {slot->microbatch.get(), slot->inferred});
  } else {
    record_rows(slot->rows, slot->id.kind, copy, 0);
  }
  return result;
}

at::Tensor Capture::parameter_gradient_arrived(int index, const at::Tensor& gradient) {
  commit_pending();
  const Microbatch microbatch = current_microbatch();
  if (!gradient.defined() || reduced_ || microbatch == nullptr) {
    return {};
  }
  const std::string& path = parameters_.all()[static_cast<std::size_t>(index)].path;
  const TensorId id = recorder_.next_id({Kind::kParamGrad, path}, microbatch.get());
  if (given_values_ == nullptr || !unreadable(gradient).empty()) {
    recorder_.record(id, gradient, {microbatch.get()});
    return {};
  }
  TensorCopy copy = copy_tensor(gradient);
  const auto bytes = given(id, copy, {microbatch.get()});
  recorder_.record(id, std::move(copy), {microbatch.get()});
  if (!bytes) {
    return {};
  }
  at::Tensor result = at::empty_like(gradient);
  overwrite_tensor(result, *bytes);
  return result;
}

void Capture::settle_gradients() {
  commit_pending();
  std::size_t missing = 0;
  for (const Slot& slot : slots_) {
    if (slot->recorded || slot->discarded || gradients_.contains(slot->id)) {
      continue;
    }
    if (slot->fallback && !slot->rows.empty()) {
      gradients_.insert(slot->id);
      record_rows(slot->rows, slot->id.kind, *slot->fallback, slot->fallback_order);
    } else if (slot->fallback) {
      gradients_.insert(slot->id);
      recorder_.record(slot->id,
                       std::move(*slot->fallback),
                       {slot->microbatch.get(), slot->inferred, slot->fallback_order});
    } else if (recorder_.wants(slot->id)) {
      ++missing;
      recorder_.note("no gradient arrived for " + to_string(slot->value));
    }
  }
  slots_.clear();
  if (missing > 0) {
    log(LogLevel::kWarning,
        "no gradient arrived for " + std::to_string(missing) + " tensors of step " +
            std::to_string(step_) + "; the trace's notes name them");
  }
}

}  // namespace ttrace
