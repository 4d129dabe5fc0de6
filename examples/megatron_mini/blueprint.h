// What every part of the model is built from.
#pragma once

#include "before_forward.h"
#include "config.h"
#include "parallel.h"
#include "parts.h"
#include "recompute.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace megatron_mini {

struct Blueprint {
  ModelConfig model;
  Parallel parallel;
  // What a part builds its own parts from; a part without parts needs none.
  std::shared_ptr<const Parts> parts{};
  RecomputePlan recompute{};
  std::vector<int> layer_tp{};  // TP degree of each layer; empty: tp
  std::shared_ptr<BeforeForward> before_forward = std::make_shared<BeforeForward>();
  std::optional<Fp8Config> fp8{};  // of linears in layers; nothing: none computes in FP8
  // What losses that start in the model are scaled by, over the whole step.
  Loss loss = Loss::kMean;
  std::int64_t micro_batches = 1;

  // What layer `number` is built from.
  [[nodiscard]] Blueprint of_layer(std::int64_t number) const;
};

// Throws UsageError where the model cannot be split so.
void check_divisible(const ModelConfig& model, const Parallel& parallel);
// Throws UsageError where layers cannot have these TP degrees.
void check_layers(const Blueprint& blueprint, std::int64_t micro_batch_size);

}  // namespace megatron_mini
