#include "hooks/capture/observer.h"

#include "hooks/base/ivalue_tensors.h"
#include "hooks/base/scope_stack.h"
#include "hooks/base/tensor_access.h"
#include "hooks/capture/capture.h"
#include "hooks/nudge/noise_class.h"

#include <ATen/record_function.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>

namespace ttrace {
namespace {

// State of one running operator, from its start to its end.
struct OperatorContext : at::ObserverContext {
  OperatorContext* parent = nullptr;
  bool is_operator = false;  // of the dispatcher; else a wrapper such as backward's nodes
  bool outermost = false;    // no other operator around it
  bool narrows = false;      // copies into a narrower floating format, which rounds
  OperatorInputs inputs;     // storages in noise passes always, else of outermost operators only
  c10::SmallVector<WeakStorage, 2> perturbed;  // by operators inside this one
};

// Of the step that `epoch` numbers. A context may be gone once its step is over.
struct Innermost {
  OperatorContext* context = nullptr;
  std::uint64_t epoch = 0;
};
thread_local Innermost innermost_operator;

OperatorContext* innermost() {
  return innermost_operator.epoch == scope_epoch() ? innermost_operator.context : nullptr;
}

void set_innermost(OperatorContext* context) {
  innermost_operator = {context, scope_epoch()};
}

// Backward's wrappers are named "autograd::engine::evaluate_function: AddmmBackward0", Python
// functions by their class; operators by namespace and name.
bool is_dispatched(const at::RecordFunction& function, std::string_view name) {
  return function.scope() == at::RecordScope::FUNCTION &&
         name.find("::") != std::string_view::npos && !name.starts_with("autograd::");
}

bool moves_data(std::string_view name) {
  return name.starts_with("c10d::") || name.starts_with("_c10d_functional::");
}

// All casts end in copy_(target, source).
bool is_narrowing_copy(std::string_view name, c10::ArrayRef<const c10::IValue> inputs) {
  if (name != "aten::copy_" || inputs.size() < 2 || !inputs[0].isTensor() ||
      !inputs[1].isTensor()) {
    return false;
  }
  const at::Tensor& target = inputs[0].toTensor();
  const at::Tensor& source = inputs[1].toTensor();
  return target.defined() && source.defined() && target.is_floating_point() &&
         source.is_floating_point() && target.element_size() < source.element_size();
}

std::unique_ptr<at::ObserverContext> on_start(const at::RecordFunction& function) {
  Capture* capture = active_capture();
  if (capture == nullptr || capture->failed() || Unobserved::here()) {
    return nullptr;
  }
  auto context = std::make_unique<OperatorContext>();
  const std::string_view name = function.name();
  context->parent = innermost();
  context->is_operator = is_dispatched(function, name);
  context->outermost =
      context->is_operator && (context->parent == nullptr || !context->parent->is_operator);
  if (context->is_operator && name.starts_with("c10d::")) {
    capture->communication_begins(name, function.inputs());
  }
  context->narrows = capture->noise() != nullptr && is_narrowing_copy(name, function.inputs());
  if (context->outermost && !moves_data(name)) {
    capture->inspect(function.inputs(), context->inputs);
  } else if (context->is_operator && capture->noise() != nullptr) {
    for (const c10::IValue& input : function.inputs()) {
      for_each_tensor(input, [&](const at::Tensor& tensor) {
        if (tensor.has_storage()) {
          context->inputs.storages.push_back(storage_of(tensor));
        }
      });
    }
  }
  set_innermost(context.get());
  return context;
}

template <class List>
bool contains_storage(const List& list, const c10::StorageImpl* storage) {
  return std::any_of(list.begin(), list.end(), [storage](const WeakStorage& item) {
    return item._unsafe_get_target() == storage;
  });
}

void perturb_outputs(NoisePolicy& noise,
                     const at::RecordFunction& function,
                     OperatorContext& context) {
  const std::string_view name = function.name();
  const NoiseClass kind =
      context.narrows && noise.casts_round() ? NoiseClass::kRounding : noise_class(name);
  const bool writes_inputs =
      name.ends_with('_') || std::string_view(function.overload_name()).ends_with("out");
  for (const c10::IValue& output : function.outputs()) {
    for_each_tensor(output, [&](const at::Tensor& tensor) {
      if (kind == NoiseClass::kNone || !tensor.has_storage() ||
          contains_storage(context.perturbed, storage_of(tensor))) {
        return;
      }
      const bool input = std::find(context.inputs.storages.begin(),
                                   context.inputs.storages.end(),
                                   storage_of(tensor)) != context.inputs.storages.end();
      if ((!input || writes_inputs) && noise.apply(tensor, kind)) {
        context.perturbed.push_back(weak_storage(tensor));
      }
    });
  }
  if (context.parent != nullptr && context.parent->is_operator) {
    auto& above = context.parent->perturbed;
    above.insert(above.end(), context.perturbed.begin(), context.perturbed.end());
  }
}

void on_end(const at::RecordFunction& function, at::ObserverContext* observer_context) {
  auto* context = static_cast<OperatorContext*>(observer_context);
  if (context == nullptr) {
    return;
  }
  if (innermost() == context) {
    set_innermost(context->parent);
  }
  Capture* capture = active_capture();
  if (capture == nullptr || !context->is_operator) {
    return;
  }
  NoisePolicy* noise = capture->noise();
  if (noise != nullptr && noise->concerns_this_thread()) {
    capture->contain([&] { perturb_outputs(*noise, function, *context); });
  }
  if (context->outermost) {
    capture->operator_finished(function.name(), context->inputs, function.outputs());
  }
}

}  // namespace

Observer::Observer()
    : handle_(at::addGlobalCallback(at::RecordFunctionCallback(&on_start, &on_end)
                                        .needsInputs(true)
                                        .needsOutputs(true)
                                        .scopes({at::RecordScope::FUNCTION}))) {
  disable();
}

Observer::~Observer() {
  at::removeCallback(handle_);
}

void Observer::enable() {
  at::reenableCallback(handle_);
}

void Observer::disable() {
  at::disableCallback(handle_);
}

}  // namespace ttrace
