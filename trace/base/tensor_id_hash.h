// A hash for unordered containers whose keys are tensor ids.
#pragma once

#include <ttrace/tensor_id.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>

namespace ttrace {

struct TensorIdHash {
  [[nodiscard]] std::size_t operator()(const TensorId& id) const {
    // The path tells most ids apart; the rest is spread over bits by an odd factor.
    constexpr std::uint64_t kSpread = 0x9e3779b97f4a7c15U;
    std::uint64_t rest = static_cast<std::uint64_t>(id.step);
    rest = rest * kSpread + static_cast<std::uint64_t>(id.microbatch);
    rest = rest * kSpread + static_cast<std::uint64_t>(id.kind);
    rest = rest * kSpread + static_cast<std::uint64_t>(id.slot);
    rest = rest * kSpread + static_cast<std::uint64_t>(id.call);
    rest = rest * kSpread + (id.recompute ? 1U : 0U);
    return std::hash<std::string_view>()(id.path) ^ (rest * kSpread);
  }
};

}  // namespace ttrace
