// The roles that names of a model and of its layout have, so that a comparison finds the attention
// cores of a program that names them differently. See docs/parallelism.md, "Names of your own".
//
// A program gives patterns for a role in its manifest (star_pattern.h). A role without a pattern
// has the usual one, which fits Megatron's names.
//
// Thread-safety: constants.
#pragma once

#include "trace/base/star_pattern.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace ttrace {

enum class Role : std::uint8_t {
  kAttention,        // paths of attention modules and all that is in them
  kExperts,          // path of the module that has a layer's experts below it
  kHiddenChoices,    // paths of modules that choose experts unseen, and all that is in them
  kLayers,           // path of a list of layers, which their numbers follow
  kNorm,             // name of a norm module, the last part of its path
  kTokens,           // data: the ids of the tokens
  kLossMask,         // data: which tokens count
  kLoss,             // scalar: a mean of the tokens' losses
  kGradientNorm,     // scalar
  kDataParallel,     // axis whose ranks have samples of their own
  kContextParallel,  // axis whose ranks have parts of the sequences, in attention too
};

struct RoleTraits {
  Role role = Role::kAttention;
  std::string_view name;
  std::string_view usual;  // pattern where the program gives none
};

inline constexpr std::array kRoles = {
    RoleTraits{Role::kAttention, "attention", "*attention*"},
    RoleTraits{Role::kExperts, "experts", "*.experts"},
    RoleTraits{Role::kHiddenChoices, "hidden_choices", ""},
    RoleTraits{Role::kLayers, "layers", "*layers"},
    RoleTraits{Role::kNorm, "norm", "*norm*"},
    RoleTraits{Role::kTokens, "tokens", "tokens"},
    RoleTraits{Role::kLossMask, "loss_mask", "loss_mask"},
    RoleTraits{Role::kLoss, "loss", "*loss*"},
    RoleTraits{Role::kGradientNorm, "gradient_norm", "*norm*"},
    RoleTraits{Role::kDataParallel, "data_parallel", "dp"},
    RoleTraits{Role::kContextParallel, "context_parallel", "cp"},
};

// A row stands at its role's number.
static_assert([] {
  for (std::size_t number = 0; number < kRoles.size(); ++number) {
    if (static_cast<std::size_t>(kRoles[number].role) != number) {
      return false;
    }
  }
  return kRoles.size() == static_cast<std::size_t>(Role::kContextParallel) + 1;
}());

// The patterns of a role where a program has given `roles`, patterns by name of the role.
[[nodiscard]] inline std::string_view patterns_of(Role role,
                                                  const std::map<std::string, std::string>& roles) {
  const RoleTraits& traits = kRoles.at(static_cast<std::size_t>(role));
  const auto given = roles.find(std::string(traits.name));
  return given == roles.end() ? traits.usual : std::string_view(given->second);
}

// Null for an unknown name.
[[nodiscard]] constexpr const RoleTraits* find_role(std::string_view name) {
  const auto* const found = std::ranges::find(kRoles, name, &RoleTraits::name);
  return found == kRoles.end() ? nullptr : found;
}

}  // namespace ttrace
