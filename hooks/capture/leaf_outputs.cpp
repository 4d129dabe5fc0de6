#include "hooks/capture/leaf_outputs.h"

#include "hooks/base/ivalue_tensors.h"
#include "hooks/base/scope_stack.h"
#include "hooks/base/take_snapshot.h"
#include "hooks/capture/record_tensor.h"

#include <algorithm>
#include <utility>

namespace ttrace {

void LeafOutputs::inspect(c10::ArrayRef<c10::IValue> inputs,
                          bool find_parameters,
                          OperatorInputs& result) const {
  bool others = false;
  for (const c10::IValue& input : inputs) {
    for_each_tensor(input, [&](const at::Tensor& tensor) {
      if (!tensor.has_storage()) {
        others = true;
        return;
      }
      result.storages.push_back(storage_of(tensor));
      if (!find_parameters || parts_.parameters.find(tensor, result.parameters)) {
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
}

std::optional<std::string> LeafOutputs::owner_of(const ParameterIndices& parameters) const {
  std::optional<std::string> result;
  const OpenScope* scope = innermost_scope();
  for (const int index : parameters) {
    const std::string& module = parts_.parameters.all()[static_cast<std::size_t>(index)].module;
    if (module.empty() || !parts_.modules.is_object(module) || !parts_.modules.is_leaf(module)) {
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

void LeafOutputs::remember_derived(const ParameterIndices& parameters,
                                   const std::vector<c10::IValue>& outputs) {
  for (const c10::IValue& output : outputs) {
    for_each_tensor(output, [&](const at::Tensor& tensor) {
      ParameterIndices itself;
      if (tensor.has_storage() && !parts_.parameters.find(tensor, itself)) {
        derived_.insert_or_assign(storage_of(tensor), Derived{weak_storage(tensor), parameters});
      }
    });
  }
}

bool LeafOutputs::continues(const std::string& module,
                            const OperatorInputs& inputs,
                            const Moment& now) const {
  if (!pending_) {
    return false;
  }
  const bool takes_result =
      std::find(inputs.storages.begin(),
                inputs.storages.end(),
                pending_->identity.storage._unsafe_get_target()) != inputs.storages.end();
  const LeafCall pending{pending_->module,
                         {pending_->used.data(), pending_->used.size()},
                         pending_->now.microbatch.get(),
                         pending_->now.run.again};
  const LeafCall next{module,
                      {inputs.parameters.data(), inputs.parameters.size()},
                      now.microbatch.get(),
                      now.run.again};
  return continues_call(pending, next, takes_result);
}

void LeafOutputs::operator_begins(const OperatorInputs& inputs, const Moment& now) {
  if (!pending_) {
    return;
  }
  const auto module = owner_of(inputs.parameters);
  if (!module || !continues(*module, inputs, now)) {
    commit();  // before this operator sees the result
  }
}

void LeafOutputs::offer(const std::string& module,
                        const OperatorInputs& inputs,
                        const at::Tensor& output,
                        const Moment& now,
                        const std::function<GradientSlotPtr()>& watch) {
  const std::string reason = unreadable(output);
  const Spot spot{Kind::kOutput, module, 0, now.run};
  if (!reason.empty()) {
    parts_.recorder.note_unreadable("an output of " + module, reason);
    return;
  }
  ParameterIndices used = inputs.parameters;
  std::optional<TensorId> producer = inputs.producer;
  if (continues(module, inputs, now)) {
    used.append(pending_->used);
    producer = pending_->producer;
    if (pending_->gradient != nullptr) {
      pending_->gradient->discarded = true;
    }
    pending_.reset();
  } else {
    commit();
  }
  std::optional<Snapshot> values;
  if (parts_.replacement.active()) {
    values = snapshot(output);
  } else if (parts_.recorder.wants_next(spot, now.microbatch.get())) {
    values = values_of(output, parts_.recorder);
  }
  pending_.emplace(Pending{module,
                           std::move(used),
                           parts_.replacement.active() ? output : at::Tensor(),
                           TensorIdentity(output),
                           std::move(values),
                           now,
                           watch(),
                           std::move(producer)});
}

std::optional<GradientSlotPtr> LeafOutputs::gradient_at(const at::Tensor& tensor) const {
  return pending_ && pending_->identity.same_place(tensor) ? std::optional(pending_->gradient)
                                                           : std::nullopt;
}

void LeafOutputs::commit() {
  if (!pending_) {
    return;
  }
  Pending pending = std::move(*pending_);
  pending_.reset();
  const MicrobatchPtr& microbatch = pending.now.microbatch;
  const TensorId id = parts_.recorder.next_id({Kind::kOutput, pending.module, 0, pending.now.run},
                                              microbatch.get());
  parts_.gradients.expect(pending.gradient, id, Kind::kGradOutput);
  if (pending.producer) {
    TensorId consumer = id;
    consumer.kind = Kind::kInput;
    parts_.recorder.edge(consumer, *pending.producer);
  }
  parts_.producers.remember({{id}, std::move(pending.identity), microbatch, pending.gradient});
  if (parts_.replacement.active()) {
    TensorCopy own = std::move(*pending.values).take();
    if (const auto bytes = parts_.replacement.of(id, own, {microbatch.get(), true})) {
      overwrite_tensor(pending.result.variable_data(), *bytes);
    }
    pending.values = std::move(own);
  }
  if (pending.values) {
    parts_.recorder.record(id, *std::move(pending.values), {microbatch.get(), true});
  }
}

void LeafOutputs::forget_expired() {
  std::erase_if(derived_, [](const auto& item) { return item.second.storage.expired(); });
}

void LeafOutputs::clear() {
  pending_.reset();
  derived_.clear();
}

}  // namespace ttrace
