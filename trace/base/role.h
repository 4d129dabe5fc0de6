// The roles that names of a model and of its layout have, so that a comparison finds the attention
// cores of a program that names them differently. See docs/parallelism.md, "Names of your own".
//
// A program gives patterns for a role in its manifest, in which `*` stands for any letters, dots
// included. A role without a pattern has the usual one, which fits Megatron's names.
//
// Thread-safety: constants.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>

namespace ttrace {

enum class Role : std::uint8_t {
  kAttention,        // paths of attention modules and all that is in them
  kExperts,          // path of the module that has a layer's experts below it
  kLayers,           // path of a list of layers, which their numbers follow
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
    RoleTraits{Role::kLayers, "layers", "*layers"},
    RoleTraits{Role::kTokens, "tokens", "tokens"},
    RoleTraits{Role::kLossMask, "loss_mask", "loss_mask"},
    RoleTraits{Role::kLoss, "loss", "*loss*"},
    RoleTraits{Role::kGradientNorm, "gradient_norm", "*norm*"},
    RoleTraits{Role::kDataParallel, "data_parallel", "dp"},
    RoleTraits{Role::kContextParallel, "context_parallel", "cp"},
};

// Null for an unknown name.
[[nodiscard]] constexpr const RoleTraits* find_role(std::string_view name) {
  const auto* const found = std::ranges::find(kRoles, name, &RoleTraits::name);
  return found == kRoles.end() ? nullptr : found;
}

}  // namespace ttrace
