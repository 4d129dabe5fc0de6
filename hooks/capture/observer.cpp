#include "hooks/capture/observer.h"

#include "hooks/base/ivalue_tensors.h"
#include "hooks/base/scope_stack.h"
#include "hooks/base/tensor_access.h"
#include "hooks/capture/capture.h"
#include "hooks/capture/random_operator.h"
#include "hooks/nudge/operator_effects.h"
#include "hooks/nudge/operator_name.h"
#include "hooks/nudge/origins.h"
#include "hooks/nudge/whole_numbers.h"

#include <ATen/record_function.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

namespace ttrace {
namespace {

// An argument that an operator changes.
struct WrittenArgument {
  at::Tensor tensor;
  bool is_result = false;
};

// State of one running operator, from its start to its end.
struct OperatorContext : at::ObserverContext {
  OperatorContext* parent = nullptr;
  bool is_operator = false;  // of the dispatcher; else a wrapper such as backward's nodes
  bool outermost = false;    // no other operator around it
  bool narrows = false;      // copies into a narrower floating format, which rounds
  at::Tensor codes;          // copies into this one, which holds FP8; else undefined
  OperatorInputs inputs;     // storages in noise passes always, else of outermost operators only
  c10::SmallVector<WeakStorage, 2> perturbed;  // by operators inside this one
  // In noise passes, on threads that compute for the step; else null.
  const OperatorEffects* effects = nullptr;
  OpaqueReads reads;
  WholeReads whole;
  c10::SmallVector<WrittenArgument, 1> written;
  TrailPlace trail;                      // in zoom passes
  std::optional<RandomOperator> random;  // it may draw random numbers
  bool drawn_inside = false;             // an operator inside this one has drawn
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

// All casts end in copy_(target, source), or in the same of lists.
bool is_narrowing_copy(std::string_view name, c10::ArrayRef<const c10::IValue> inputs) {
  if ((name != "aten::copy_" && name != "aten::_foreach_copy_") || inputs.size() < 2) {
    return false;
  }
  const at::Tensor target = first_tensor(inputs[0]);
  const at::Tensor source = first_tensor(inputs[1]);
  return target.defined() && source.defined() && target.is_floating_point() &&
         source.is_floating_point() && target.element_size() < source.element_size();
}

bool holds_codes(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kFloat8_e4m3fn || tensor.scalar_type() == at::kFloat8_e5m2;
}

void look_at_arguments(Capture& capture,
                       const at::RecordFunction& function,
                       OperatorContext& context) {
  context.effects = &effects_of(function);
  const auto inputs = function.inputs();
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (context.effects->writes_argument(i)) {
      for_each_tensor(inputs[i], [&](const at::Tensor& tensor) {
        context.written.push_back({tensor, context.effects->is_result_argument(i)});
      });
    }
  }
  if (context.effects->material == Material::kArguments) {
    capture.contain([&] { context.reads = capture.opaque_reads(inputs, *context.effects); });
  }
  if (context.effects->noise != NoiseClass::kNone || context.narrows) {
    capture.contain([&] {
      context.whole = whole_reads(function, *context.effects, [&](const at::Tensor& tensor) {
        return capture.is_blank(tensor);
      });
    });
  }
}

void look_for_draws(Capture& capture,
                    const at::RecordFunction& function,
                    OperatorContext& context) {
  const OperatorEffects& effects = effects_of(function);
  if (effects.may_draw) {
    capture.contain([&] { context.random.emplace(function.name(), function.inputs(), effects); });
  }
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
  if (context->is_operator &&
      (name.starts_with("c10d::") || name.starts_with("_c10d_functional::"))) {
    capture->communication_begins(name, function.inputs());
  }
  context->narrows = is_narrowing_copy(name, function.inputs());
  if (context->narrows) {
    const at::Tensor target = first_tensor(function.inputs()[0]);
    context->codes = holds_codes(target) ? target : at::Tensor();
  }
  if (context->outermost && !communicates(name)) {
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
  if (context->is_operator) {
    look_for_draws(*capture, function, *context);
  }
  if (context->is_operator && capture->noise() != nullptr &&
      capture->noise()->concerns_this_thread()) {
    look_at_arguments(*capture, function, *context);
  }
  if (capture->zooms()) {
    const TrailPlace* const around = context->parent == nullptr ? nullptr : &context->parent->trail;
    capture->operator_begins(function, context->is_operator, around, context->trail);
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
                     NoiseClass kind,
                     const at::RecordFunction& function,
                     OperatorContext& context) {
  const std::string_view name = function.name();
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
      if ((!input || writes_inputs) && noise.apply(tensor, kind, context.whole)) {
        context.perturbed.push_back(weak_storage(tensor));
      }
    });
  }
}

// What an operator without results changes: lists (_foreach_add_, _fused_adamw_), and what a custom
// operator writes to. Arguments may share a storage.
void perturb_written(NoisePolicy& noise, NoiseClass kind, OperatorContext& context) {
  if (kind == NoiseClass::kNone || context.effects->returns) {
    return;
  }
  const auto inner = context.perturbed;
  for (const WrittenArgument& argument : context.written) {
    if (argument.is_result && argument.tensor.has_storage() &&
        !contains_storage(inner, storage_of(argument.tensor)) &&
        noise.apply(argument.tensor, kind, context.whole)) {
      context.perturbed.push_back(weak_storage(argument.tensor));
    }
  }
}

// Called when an operator is done, innermost first. Of operators within each other the innermost
// one has drawn.
void finish_draw(Capture& capture, const at::RecordFunction& function, OperatorContext& context) {
  const bool drawn = !context.drawn_inside && context.random && context.random->has_drawn();
  if (drawn) {
    capture.drew(*context.random, function.name(), function.outputs());
  }
  for (OperatorContext* above = context.parent; drawn && above != nullptr; above = above->parent) {
    above->drawn_inside = true;
  }
}

// Called when an operator is done, innermost first.
void finish_noise(Capture& capture, const at::RecordFunction& function, OperatorContext& context) {
  NoisePolicy& noise = *capture.noise();
  const NoiseClass kind =
      context.narrows && noise.casts_round() ? NoiseClass::kRounding : context.effects->noise;
  perturb_outputs(noise, kind, function, context);
  perturb_written(noise, kind, context);
  for (const WrittenArgument& argument : context.written) {
    if (argument.tensor.has_storage()) {
      const bool moved = contains_storage(context.perturbed, storage_of(argument.tensor));
      capture.argument_written(argument.tensor, moved, *context.effects, context.reads);
    }
  }
  for (const c10::IValue& output : function.outputs()) {
    for_each_tensor(output, [&](const at::Tensor& tensor) {
      if (!tensor.has_storage()) {
        return;
      }
      const bool moved = contains_storage(context.perturbed, storage_of(tensor));
      const bool is_view = std::find(context.inputs.storages.begin(),
                                     context.inputs.storages.end(),
                                     storage_of(tensor)) != context.inputs.storages.end();
      // lift_fresh is the last of torch.tensor() and from_numpy(): the program's data, unless a
      // module calls it, which may hand on what numpy has computed.
      const bool is_given = context.effects->material == Material::kConstants &&
                            context.written.empty() && !capture.in_model();
      if (moved || !is_view || is_given) {
        capture.result_made(tensor, moved, *context.effects, context.reads);
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
  finish_draw(*capture, function, *context);
  if (context->effects != nullptr && capture->noise() != nullptr) {
    capture->contain([&] { finish_noise(*capture, function, *context); });
  }
  if (context->codes.defined()) {
    capture->quantised(context->codes);
  }
  if (context->trail.call) {
    capture->operator_ends(function, context->trail);
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
