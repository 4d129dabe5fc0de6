// Records of the modules around a finding: what a module returned, what may have been its input,
// what another layer has in the same place.
//
// Thread-safety: free functions without shared state.
#pragma once

#include "analysis/causes/common/evidence.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ttrace {

// "decoder.layers.", 2, ".mlp" of "decoder.layers.2.mlp".
struct LayerPath {
  std::string before;
  std::int64_t layer = 0;
  std::string after;
};

[[nodiscard]] std::optional<LayerPath> layer_path(const std::string& path);

// The same place in two different layers.
[[nodiscard]] bool is_same_in_other_layer(const std::string& left, const std::string& right);

[[nodiscard]] TensorId weight_id(std::int64_t step, const std::string& module);

// Slot 0 of `module` in the finding's micro-batch.
[[nodiscard]] const Match* record_of(const Evidence& evidence,
                                     Kind kind,
                                     const std::string& module);
[[nodiscard]] std::optional<Values> candidate_of(const Evidence& evidence,
                                                 Kind kind,
                                                 const std::string& module);

// Forward tensors of the same micro-batch that the candidate recorded before `output`, latest
// first: what may have been the input of the module that returned it. At most eight.
[[nodiscard]] std::vector<const Match*> forward_before(const Evidence& evidence,
                                                       const TensorId& output);

}  // namespace ttrace
