#include "hooks/nudge/operator_effects.h"

#include "hooks/nudge/operator_name.h"

#include <ATen/core/function_schema.h>

#include <array>
#include <string>
#include <string_view>
#include <unordered_map>

namespace ttrace {
namespace {

constexpr std::array kAllocations = {
    std::string_view("empty"),
    std::string_view("new_empty"),
    std::string_view("resize"),
};

constexpr std::array kZeros = {
    std::string_view("zero"),  // zeros, zeros_like, zero_
    std::string_view("new_zeros"),
    std::string_view("_efficientzerotensor"),
};

constexpr std::array kConstants = {
    std::string_view("ones"),
    std::string_view("full"),
    std::string_view("fill"),
    std::string_view("new_ones"),
    std::string_view("new_full"),
    std::string_view("rand"),
    std::string_view("lift_fresh"),
};

Material material_of(std::string_view base) {
  return starts_with_one_of(kAllocations, base) ? Material::kMemory
         : starts_with_one_of(kZeros, base)     ? Material::kZeros
         : starts_with_one_of(kConstants, base) ? Material::kConstants
                                                : Material::kArguments;
}

OperatorEffects look_up(const at::RecordFunction& function) {
  OperatorEffects effects;
  const std::string_view base = base_name(function.name());
  effects.material = material_of(base);
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
