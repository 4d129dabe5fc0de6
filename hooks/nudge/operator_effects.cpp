#include "hooks/nudge/operator_effects.h"

#include "hooks/nudge/noise_class.h"
#include "hooks/nudge/operator_name.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/enum_tag.h>
#include <ATen/core/function_schema.h>

#include <array>
#include <string>
#include <string_view>
#include <unordered_map>

namespace ttrace {
namespace {

constexpr auto kAllocations = std::to_array<std::string_view>({"empty", "new_empty", "resize"});

constexpr std::array kZeros = {
    std::string_view("zero"),  // zeros, zeros_like, zero_
    std::string_view("new_zeros"),
    std::string_view("_efficientzerotensor"),
};

constexpr auto kConstants = std::to_array<std::string_view>(
    {"ones", "full", "fill", "new_ones", "new_full", "rand", "lift_fresh"});

Material material_of(std::string_view base) {
  return starts_with_one_of(kAllocations, base) ? Material::kMemory
         : starts_with_one_of(kZeros, base)     ? Material::kZeros
         : starts_with_one_of(kConstants, base) ? Material::kConstants
                                                : Material::kArguments;
}

// Namespaces of operators that never draw, or that carry torch's tag if they do.
constexpr auto kTagged = std::to_array<std::string_view>(
    {"aten::", "prim::", "prims::", "c10d::", "_c10d_functional::", "profiler::", "inductor::"});

bool is_foreign(std::string_view name) {
  return !starts_with_one_of(kTagged, name);
}

OperatorEffects look_up(const at::RecordFunction& function) {
  OperatorEffects effects;
  const std::string_view base = base_name(function.name());
  effects.material = material_of(base);
  effects.noise = noise_class(function.name());
  if (const auto name = function.operator_name()) {
    const auto handle = c10::Dispatcher::singleton().findOp(*name);
    effects.is_composed =
        handle && handle->hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd);
    // An operator that torch does not have carries the tag only if its author thought of it.
    effects.may_draw = handle && !effects.is_composed &&
                       (handle->hasTag(at::Tag::nondeterministic_seeded) || is_foreign(name->name));
  }
  const bool resizes = base.starts_with("resize");
  effects.overwrites = (effects.material != Material::kArguments && !resizes) || base == "copy_" ||
                       std::string_view(function.overload_name()).ends_with("out");
  const auto schema = function.operator_schema();
  if (!schema) {
    return effects;
  }
  effects.returns = !schema->returns().empty();
  for (const c10::Argument& argument : schema->arguments()) {
    const bool writes = argument.alias_info() != nullptr && argument.alias_info()->isWrite();
    effects.writes.push_back(writes);
    // Fused optimizers may divide gradients by the loss's scale in place.
    effects.is_result.push_back(writes && argument.name() != "grads");
  }
  return effects;
}

}  // namespace

const OperatorEffects& effects_of(const at::RecordFunction& function) {
  // By name, because the schema of an operator costs a copy.
  thread_local std::unordered_map<std::string, OperatorEffects> known;
  std::string name = function.name();
  name += '.';
  name += function.overload_name();
  const auto found = known.find(name);
  if (found != known.end()) {
    return found->second;
  }
  return known.emplace(std::move(name), look_up(function)).first->second;
}

}  // namespace ttrace
