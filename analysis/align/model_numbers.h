// What programs say of their model in the section `model` of a manifest, and the numbers that the
// analysis reads there. Programs may write any other keys, and leave out any of these.
//
// Thread-safety: free functions without shared state.
#pragma once

#include "trace/file/manifest.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ttrace {

namespace model_keys {
inline constexpr auto kHidden = "hidden";             // size of the residual stream
inline constexpr auto kHeads = "heads";               // of queries
inline constexpr auto kQueryGroups = "query_groups";  // heads of keys and values
inline constexpr auto kSequence = "sequence";         // tokens of a sample
inline constexpr auto kRotaryBase = "rotary_base";
inline constexpr auto kExperts = "experts";
inline constexpr auto kTopK = "top_k";        // experts of a token
inline constexpr auto kAuxLoss = "aux_loss";  // weight of the load-balancing loss
inline constexpr auto kZLoss = "z_loss";      // weight of the router's z loss
}  // namespace model_keys

// Nothing where the key is absent or its text is no number.
[[nodiscard]] std::optional<double> model_number(const Section& model, std::string_view key);

// Hidden units per head; 0 where the model does not say it, or has a single head.
[[nodiscard]] std::int64_t head_size(const Section& model);

}  // namespace ttrace
