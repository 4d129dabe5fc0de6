// The part of Capture that gradient hooks report to.
#include "hooks/base/take_snapshot.h"
#include "hooks/capture/capture.h"
#include "hooks/capture/record_tensor.h"

#include <ttrace/log.h>

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/graph_task.h>

#include <optional>
#include <set>
#include <utility>

namespace ttrace {
namespace {

bool will_get_gradient(const at::Tensor& tensor) {
  return tensor.defined() && tensor.requires_grad() && at::GradMode::is_enabled();
}

}  // namespace

void Capture::watch_parameters() {
  std::set<const c10::TensorImpl*> seen;
  for (std::size_t i = 0; i < parameters_.all().size(); ++i) {
    const at::Tensor& tensor = parameters_.all()[i].tensor;
    // A weight registered under two names gets one gradient: the first name has it.
    if (!tensor.requires_grad() || !seen.insert(tensor.unsafeGetTensorImpl()).second) {
      continue;
    }
    parameter_hooks_.add(
        tensor, [weak = weak_from_this(), index = static_cast<int>(i)](const at::Tensor& gradient) {
          at::Tensor result;  // undefined: the given one
          if (const auto self = weak.lock()) {
            self->contain([&] { result = self->parameter_gradient_arrived(index, gradient); });
          }
          return result;
        });
  }
}

void Capture::release_parameters() {
  parameter_hooks_.remove_from_leaves();
}

GradientSlotPtr Capture::watch(const at::Tensor& tensor,
                               const MicrobatchPtr& microbatch,
                               bool inferred) {
  if (!will_get_gradient(tensor)) {
    return nullptr;
  }
  auto slot = std::make_shared<GradientSlot>();
  slot->microbatch = microbatch;
  slot->inferred = inferred;
  hook(tensor, slot, false);
  return slot;
}

void Capture::hook(const at::Tensor& tensor, const GradientSlotPtr& slot, bool fallback) {
  activation_hooks_.add(
      tensor, [weak = weak_from_this(), slot, fallback](const at::Tensor& gradient) {
        at::Tensor result;  // undefined: the given one
        if (const auto self = weak.lock()) {
          self->contain([&] { result = self->gradient_arrived(slot, gradient, fallback); });
        }
        return result;
      });
}

void Capture::bind_backward(const at::Tensor& tensor, const MicrobatchPtr& microbatch) {
  if (!will_get_gradient(tensor)) {
    return;
  }
  activation_hooks_.add(
      tensor, [weak = weak_from_this(), microbatch, step = step_](const at::Tensor& gradient) {
        static_cast<void>(gradient);
        const auto self = weak.lock();
        if (self && in_backward() && self->step_ == step) {
          self->contain([&] {
            self->microbatches_.bind(torch::autograd::get_current_graph_task_id(), microbatch);
          });
        }
        return at::Tensor();  // the given one
      });
}

at::Tensor Capture::gradient_arrived(const GradientSlotPtr& slot,
                                     const at::Tensor& arrived,
                                     bool fallback) {
  leaves_.commit();  // may be what gives the slot its id
  if (!arrived.defined() || reduced_ || !GradientWaits::is_awaited(*slot, step_)) {
    return {};
  }
  has_gradients_ = true;
  if (in_backward()) {  // parameters' gradients and recomputed forwards follow in this task
    microbatches_.bind(torch::autograd::get_current_graph_task_id(), slot->microbatch);
  }
  if (fallback) {
    return fallback_arrived(*slot, arrived);
  }
  std::optional<Snapshot> earlier = gradients_.arrive(*slot);
  const std::string reason = unreadable(arrived);
  if (!reason.empty()) {
    gradients_.note_unreadable(*slot, reason);
    return {};
  }
  const at::Tensor moved = gradient_with_noise(arrived);
  const at::Tensor& gradient = moved.defined() ? moved : arrived;
  settle_sums(slot->id, "", gradient, slot->sums);
  if (!replacement_.active()) {
    if (gradients_.wants(*slot)) {
      gradients_.record(*slot, values_of(gradient, recorder_));
    }
    return moved;
  }
  // A gradient that arrives after a fallback is already the candidate's.
  TensorCopy own = (earlier ? *std::move(earlier) : snapshot(gradient)).take();
  at::Tensor result = replaced_gradient(gradient, replaced(*slot, own));
  gradients_.record(*slot, std::move(own));
  return result;
}

at::Tensor Capture::fallback_arrived(GradientSlot& slot, const at::Tensor& gradient) {
  if (!unreadable(gradient).empty() || !recorder_.wants(slot.id)) {
    return {};
  }
  if (!replacement_.active()) {
    gradients_.keep_fallback(slot, values_of(gradient, recorder_));
    return {};
  }
  TensorCopy own = snapshot(gradient).take();
  at::Tensor result = replaced_gradient(gradient, replaced(slot, own));
  gradients_.keep_fallback(slot, std::move(own));
  return result;
}

std::optional<std::vector<std::byte>> Capture::replaced(const GradientSlot& slot,
                                                        const TensorCopy& own) {
  if (!slot.rows.empty()) {
    return replacement_.of(slot.rows, slot.id.kind, own);
  }
  const Recorder::Options options{slot.microbatch.get(), slot.inferred};
  auto values = replacement_.of(slot.id, own, options);
  // Two names of one tensor have one gradient here. Where the candidate has two tensors, that of
  // the second one is a part of the first one's, which stands.
  const bool is_part = values && !slot.of_first_name.path.empty() &&
                       values != replacement_.of(slot.of_first_name, own, options);
  return is_part ? std::nullopt : std::move(values);
}

at::Tensor Capture::parameter_gradient_arrived(int index, const at::Tensor& gradient) {
  leaves_.commit();
  const MicrobatchPtr microbatch = current_microbatch();
  if (!gradient.defined() || reduced_ || microbatch == nullptr) {
    return {};
  }
  has_gradients_ = true;
  const std::string& path = parameters_.all()[static_cast<std::size_t>(index)].path;
  const TensorId id = recorder_.next_id({Kind::kParamGrad, path}, microbatch.get());
  if (const auto summed = summed_gradients_.find(path); summed != summed_gradients_.end()) {
    record_known_sum(id, gradient, summed->second);
  }
  if (!replacement_.active() || !unreadable(gradient).empty()) {
    const at::Tensor moved =
        unreadable(gradient).empty() ? gradient_with_noise(gradient) : at::Tensor();
    record_tensor(recorder_, id, moved.defined() ? moved : gradient, {microbatch.get()});
    return moved;
  }
  TensorCopy own = snapshot(gradient).take();
  const auto bytes = replacement_.of(id, own, {microbatch.get()});
  recorder_.record(id, std::move(own), {microbatch.get()});
  return replaced_gradient(gradient, bytes);
}

void Capture::settle_gradients() {
  leaves_.commit();
  const std::size_t missing = gradients_.settle();
  if (missing > 0) {
    log(LogLevel::kWarning,
        std::to_string(missing) + " tensors of step " + std::to_string(step_) +
            " got no gradient; the trace's notes name them");
  }
}

}  // namespace ttrace
