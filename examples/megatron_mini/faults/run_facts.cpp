#include "run_facts.h"

#include <algorithm>
#include <cstdint>

namespace megatron_mini::faults {

namespace {

bool has_whole_layers(const Options& options) {
  const auto& degrees = options.layer_tp;
  return !options.layer_dp && std::any_of(degrees.begin(), degrees.end(), [&](int degree) {
    return degree < options.tp;
  });
}

}  // namespace

RunFacts facts_of(const Options& options, const Config& config) {
  const bool is_fp8 = config.precision == Precision::kFP8;
  return {{"tp", options.tp},
          {"sp", options.sequence_parallel ? 1 : 0},
          {"cp", options.cp},
          {"dp", options.dp},
          {"pp", options.pp},
          {"vpp", options.vpp},
          {"first_stage_layers", options.first_stage_layers.value_or(0)},
          {"last_stage_layers", options.last_stage_layers.value_or(0)},
          {"zero1", options.zero1 ? 1 : 0},
          {"overlap_gather", options.overlap_gather ? 1 : 0},
          {"layers", config.model.layers},
          {"micro_batches", config.data.micro_batches},
          {"micro_batch_size", config.data.micro_batch_size},
          {"swiglu", config.model.activation == Activation::kSwiglu ? 1 : 0},
          {"tied", config.model.tied ? 1 : 0},
          {"ep", options.ep},
          {"etp", options.etp},
          {"local_experts", config.model.experts / options.ep},
          {"experts", config.model.experts},
          {"top_k", config.model.top_k},
          {"aux_loss", config.model.aux_loss > 0.0 ? 1 : 0},
          {"z_loss", config.model.z_loss > 0.0 ? 1 : 0},
          {"expert_bias", config.model.expert_bias > 0.0 ? 1 : 0},
          {"packed", config.data.documents == Documents::kPacked ? 1 : 0},
          {"loss_mask", config.data.masked == Masked::kNone ? 0 : 1},
          {"per_token", config.loss == Loss::kPerToken ? 1 : 0},
          {"clip", config.optimizer.clip > 0.0 ? 1 : 0},
          {"dropout", config.model.dropout > 0.0 ? 1 : 0},
          {"attention_dropout", config.model.attention_dropout > 0.0 ? 1 : 0},
          {"frozen", config.model.frozen.empty() ? 0 : 1},
          {"layer_tp", has_whole_layers(options) ? 1 : 0},
          {"recompute_full", options.recompute.parts == RecomputedParts::kFull ? 1 : 0},
          {"recompute_layers", options.recompute.layers},
          {"recompute_selective", options.recompute.parts == RecomputedParts::kSelective ? 1 : 0},
          {"precision", static_cast<std::int64_t>(config.precision)},
          {"bf16", static_cast<std::int64_t>(Precision::kBF16)},
          {"fp8", is_fp8 ? 1 : 0},
          {"delayed", is_fp8 && config.fp8.recipe == Fp8Recipe::kDelayed ? 1 : 0},
          {"bf16_ends", is_fp8 ? config.fp8.bf16_ends : 0}};
}

}  // namespace megatron_mini::faults
