// The part of Capture that puts noise on values which no dispatched operator made.
#include "hooks/base/ivalue_tensors.h"
#include "hooks/base/scope_stack.h"
#include "hooks/capture/capture.h"

#include <algorithm>

namespace ttrace {
namespace {

bool covers_its_storage(const at::Tensor& tensor) {
  return tensor.nbytes() == storage_of(tensor)->nbytes();
}

}  // namespace

bool Capture::in_model() {
  return innermost_scope() != nullptr || in_backward();
}

Origin Capture::origin_of(const at::Tensor& tensor) const {
  if (const auto known = origins_.of(tensor)) {
    return *known;
  }
  // Of what is read outside of modules, and not in backward, the program's data are the most.
  return in_model() && tensor.is_floating_point() && tensor.dim() > 0 &&
                 !parameters_.is_parameter_memory(tensor)
             ? Origin::kOpaque
             : Origin::kKnown;
}

bool Capture::is_opaque(const at::Tensor& tensor) const {
  const Origin origin = origin_of(tensor);
  return origin == Origin::kEmpty || origin == Origin::kOpaque;
}

bool Capture::is_blank(const at::Tensor& tensor) const {
  return tensor.has_storage() && origins_.of(tensor) == Origin::kEmpty;
}

OpaqueReads Capture::opaque_reads(c10::ArrayRef<const c10::IValue> inputs,
                                  const OperatorEffects& effects) const {
  OpaqueReads reads;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (effects.writes_argument(i)) {
      continue;
    }
    for_each_tensor(inputs[i], [&](const at::Tensor& tensor) {
      if (tensor.has_storage() && tensor.is_floating_point() && tensor.dim() > 0) {
        reads.values = true;
        reads.opaque = reads.opaque || is_opaque(tensor);
      }
    });
  }
  return reads;
}

void Capture::result_made(const at::Tensor& tensor,
                          bool moved,
                          const OperatorEffects& effects,
                          const OpaqueReads& reads) {
  const Origin made = effects.material == Material::kMemory  ? Origin::kEmpty
                      : effects.material == Material::kZeros ? Origin::kZeros
                      : reads.opaque                         ? Origin::kOpaque
                                                             : Origin::kKnown;
  origins_.set(tensor, moved ? Origin::kKnown : made);
}

void Capture::argument_written(const at::Tensor& tensor,
                               bool moved,
                               const OperatorEffects& effects,
                               const OpaqueReads& reads) {
  const bool overwritten = effects.overwrites && covers_its_storage(tensor);
  if (moved || overwritten) {
    result_made(tensor, moved, effects, reads);
    return;
  }
  if (effects.material == Material::kMemory || effects.material == Material::kZeros) {
    return;  // of a part
  }
  const Origin before = origin_of(tensor);
  // An operator that takes no other values has changed those that were there: relu_.
  const bool keeps_values = !effects.overwrites && !reads.values;
  const bool opaque =
      reads.opaque || before == Origin::kOpaque || (before == Origin::kEmpty && keeps_values);
  origins_.set(tensor, opaque ? Origin::kOpaque : Origin::kKnown);
}

NoiseClass Capture::noise_class_of(const std::string& module) const {
  const std::string below = module + ".";
  const auto& parameters = parameters_.all();
  const bool multiplies =
      std::any_of(parameters.begin(), parameters.end(), [&](const Parameter& parameter) {
        return parameter.tensor.dim() > 1 &&
               (parameter.module == module || parameter.module.starts_with(below));
      });
  return multiplies ? NoiseClass::kReduction : NoiseClass::kRounding;
}

at::Tensor Capture::with_noise(const at::Tensor& tensor, NoiseClass noise) {
  at::Tensor result = tensor.clone();
  if (noise_->apply_to_opaque(result, noise)) {
    origins_.set(result, Origin::kKnown);
  }
  return result;
}

at::Tensor Capture::value_with_noise(const Spot& spot, const at::Tensor& tensor) {
  if (!noise_ || !noise_->concerns_this_thread() || !tensor.is_floating_point()) {
    return tensor;
  }
  if (spot.kind == Kind::kInput) {
    origins_.set_if_new(tensor, Origin::kKnown);
  }
  if (!is_opaque(tensor)) {
    return tensor;
  }
  return with_noise(tensor,
                    spot.kind == Kind::kInput ? NoiseClass::kRounding : noise_class_of(spot.path));
}

at::Tensor Capture::gradient_with_noise(const at::Tensor& gradient) {
  if (!noise_ || !gradient.is_floating_point() || !is_opaque(gradient)) {
    return {};
  }
  return with_noise(gradient, NoiseClass::kReduction);
}

void Capture::given(const at::Tensor& tensor) {
  if (!noise_) {
    return;
  }
  contain([&] {
    if (tensor.defined() && tensor.has_storage()) {
      origins_.set_if_new(tensor, Origin::kKnown);
    }
  });
}

}  // namespace ttrace
