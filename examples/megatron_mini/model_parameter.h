// A parameter, and what the gradient reduction has to know about it.
//
// Thread-safety: values.
#pragma once

#include "parallel.h"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>

namespace megatron_mini {

// Where ranks hold a parameter. Replicated ones are whole on every tp
// rank; with sequence parallelism a rank's gradient of them is an addend that comes from its rows.
// Whole ones have whole gradients on every tp rank as well.
// Experts are the business of other ranks (parallel.h); the bias of an expert's linear_fc2 is whole
// on every rank of etp, of which the first adds it, so that the others' gradient of it is 0.
enum class ParameterRole : std::uint8_t {
  kSplit,
  kReplicatedNorm,
  kReplicatedBias,
  kReplicatedRouter,
  kWhole,
  kExpertSplit,
  kExpertReplicated,
};

[[nodiscard]] inline bool is_of_expert(ParameterRole role) {
  return role == ParameterRole::kExpertSplit || role == ParameterRole::kExpertReplicated;
}

struct ModelParameter {
  std::string path;
  at::Tensor tensor;
  ParameterRole role = ParameterRole::kSplit;
  int chunk = 0;                      // whose backward gives its gradient
  bool is_second_copy = false;        // of the tied weight, on the last stage
  std::optional<LayerRanks> ranks{};  // of a layer that divides the ranks in a way of its own
};

}  // namespace megatron_mini
