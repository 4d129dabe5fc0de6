// The part of Capture that the operator callback reports to.
#include "hooks/base/ivalue_tensors.h"
#include "hooks/capture/capture.h"

#include <ATen/core/grad_mode.h>

#include <utility>

namespace ttrace {
namespace {

bool is_in_place(std::string_view name) {
  return name.ends_with('_') && !name.ends_with("__");
}

// In-place operators whose gradient with respect to the old value equals that of the new one.
bool hands_gradient_on(std::string_view name) {
  return name == "aten::add_" || name == "aten::sub_";
}

}  // namespace

void Capture::inspect(c10::ArrayRef<c10::IValue> inputs, OperatorInputs& result) {
  contain([&] {
    leaves_.inspect(inputs, !reduced_, result);
    if (result.may_be_a_module() || replacement_.active()) {
      leaves_.operator_begins(result, now());
    }
    if (result.may_be_a_module() && !noise_ && !in_backward()) {
      result.producer = producers_.producer_among(inputs, current_microbatch());
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
      leaves_.remember_derived(inputs.parameters, outputs);
      return;
    }
    const at::Tensor output = first_tensor(outputs);
    if (output.defined() && in_microbatch() && !offer_output(inputs, output) && is_in_place(name)) {
      follow_in_place(name, output);
    }
  });
}

bool Capture::offer_output(const OperatorInputs& inputs, const at::Tensor& output) {
  const OpenScope* scope = innermost_scope();
  // What an operator of one simulated rank returns says nothing of the others.
  if (recorder_.ranks() > 1 || inputs.parameters.empty() || (scope != nullptr && scope->leaf) ||
      !output.is_floating_point() || parameters_.is_parameter_memory(output)) {
    return false;
  }
  const auto module = leaves_.owner_of(inputs.parameters);
  if (!module) {
    return false;
  }
  const Moment moment = now();
  leaves_.offer(
      *module, inputs, output, moment, [&] { return watch(output, moment.microbatch, true); });
  return true;
}

void Capture::follow_in_place(std::string_view name, const at::Tensor& output) {
  if (!unreadable(output).empty()) {
    return;
  }
  const auto pending = leaves_.gradient_at(output);
  const GradientSlotPtr slot = pending ? *pending : producers_.gradient_at(output);
  if (slot == nullptr) {
    return;
  }
  slot->transparent = slot->transparent && hands_gradient_on(name);
  if (slot->transparent && output.requires_grad() && at::GradMode::is_enabled()) {
    hook(output, slot, true);
  }
}

}  // namespace ttrace
