#include "bugs.h"

#include <ttrace/error.h>

#include <algorithm>
#include <array>

namespace megatron_mini {

namespace {

constexpr std::string_view kForwardSite = "decoder.layers.1.mlp.linear_fc2";
constexpr std::string_view kBackwardSite = "decoder.layers.1.mlp.linear_fc1";
constexpr std::string_view kScaledSite = "decoder.layers.1.self_attention.linear_proj";
constexpr std::string_view kBiasSite = "decoder.layers.1.self_attention.linear_proj";
constexpr std::string_view kDoubleSite = "decoder.layers.1.self_attention.linear_qkv";
constexpr std::string_view kStaleSite = "decoder.layers.1.mlp.linear_fc1.weight";
constexpr std::string_view kSoftmaxSite = "decoder.layers.1.self_attention.core_attention";
constexpr std::string_view kGatherSite = "decoder.layers.1.self_attention.linear_qkv";

constexpr std::array<BugEntry, 13> kTable = {{
    {Bug::kTpForwardAllreduce,
     "tp-forward-allreduce",
     "Megatron-LM PR #5338: the reducing helper summed a contiguous copy of its input and handed "
     "back the input itself, so that a row-parallel linear returned its own addend",
     "tp >= 2, layers >= 2",
     R"(output/decoder\.layers\.1\.mlp\.linear_fc2/0)",
     "missing_reduction",
     [](const BugSetting& run) { return run.tp >= 2 && run.layers >= 2; }},
    {Bug::kTpBackwardAllreduce,
     "tp-backward-allreduce",
     "Megatron-LM commit 5fffdfc737: the autograd function of a column-parallel linear with frozen "
     "weight computed its input's gradient and never summed it over tp",
     "tp >= 2, layers >= 2",
     R"(grad_output/decoder\.layers\.1\.pre_mlp_layernorm/0)",
     "missing_reduction",
     [](const BugSetting& run) { return run.tp >= 2 && run.layers >= 2; }},
    {Bug::kSpNormGrad,
     "sp-norm-grad",
     "Megatron-LM issue #1446, TransformerEngine PR #1528: norm weights lost the mark that asks "
     "for their gradients to be summed over the ranks that share a sequence",
     "tp >= 2 with --sp",
     R"(main_grad/decoder\.(layers\.\d+\.(input_layernorm|pre_mlp_layernorm)|final_layernorm))"
     R"(\.(weight|bias)/0)",
     "missing_reduction",
     [](const BugSetting& run) { return run.tp >= 2 && run.sequence_parallel; }},
    {Bug::kDpDivisor,
     "dp-divisor",
     "Megatron-LM commits 3bdcbbbe5d and 3373641ff1: gradients were summed over data-parallel "
     "ranks with a divisor that did not match the number of ranks",
     "dp >= 2, loss mean",
     "main_grad/",
     "wrong_factor",
     [](const BugSetting& run) { return run.dp >= 2 && run.loss == Loss::kMean; }},
    {Bug::kScaledLinear,
     "scaled-linear",
     "synthetic: a projection's output is 5 % too large, to measure how small an error is found",
     "layers >= 2",
     R"(output/decoder\.layers\.1\.self_attention\.linear_proj/0)",
     "wrong_factor",
     [](const BugSetting& run) { return run.layers >= 2; }},
    {Bug::kEmbeddingMask,
     "embedding-mask",
     "synthetic: no public commit with this slip is known; the last row of every shard counts as "
     "another rank's in the vocabulary-parallel embedding, so that its tokens become zeros. The "
     "beginning token is the last row of the vocabulary",
     "tp >= 2",
     R"(output/embedding\.word_embeddings/0)",
     "localised",
     [](const BugSetting& run) { return run.tp >= 2; }},
    {Bug::kRepeatedBias,
     "repeated-bias",
     "Paddle PR #35186, slapo issue #10, MinivLLM issue #80: a row-parallel linear added its bias "
     "on every tensor-parallel rank before the sum over them",
     "tp >= 2, layers >= 2",
     R"(output/decoder\.layers\.1\.self_attention\.linear_proj/0)",
     "repeated_bias",
     [](const BugSetting& run) { return run.tp >= 2 && run.layers >= 2; }},
    {Bug::kDoubleReduction,
     "double-reduction",
     "tt-metal PR #31748: backward summed the gradient of a tensor-parallel block's input over the "
     "ranks twice, in the node that had broadcast it and in another one",
     "tp >= 2, layers >= 2",
     R"(grad_output/decoder\.layers\.1\.input_layernorm/0)",
     "repeated_reduction|wrong_factor",
     [](const BugSetting& run) { return run.tp >= 2 && run.layers >= 2; }},
    {Bug::kDroppedMicrobatch,
     "dropped-microbatch",
     "DeepSpeed PR #6550: with gradient accumulation one micro-batch's gradients were overwritten "
     "instead of added to",
     "micro_batches >= 2",
     "main_grad/",
     "missing_microbatch",
     [](const BugSetting& run) { return run.micro_batches >= 2; }},
    {Bug::kStaleParameter,
     "stale-parameter",
     "Megatron-LM issue #663, commit 75120dbf06: updated values were not copied back into the "
     "parameters that the model computes with",
     "precision bf16, layers >= 2",
     R"(param_next/decoder\.layers\.1\.mlp\.linear_fc1\.weight/0)",
     "stale",
     [](const BugSetting& run) { return run.precision == Precision::kBF16 && run.layers >= 2; }},
    {Bug::kLocalClipNorm,
     "local-clip-norm",
     "torchtitan PR #649: with the model spread over ranks, each one clipped by the norm of its "
     "own "
     "gradients",
     "tp >= 2",
     "scalar/grad_norm/0",
     "local_norm",
     [](const BugSetting& run) { return run.tp >= 2; }},
    {Bug::kSoftmaxScale,
     "softmax-scale",
     "Megatron-LM commit 62f0a9737d: the softmax scale of an attention with YaRN was derived from "
     "the wrong configuration field",
     "layers >= 2",
     R"(output/decoder\.layers\.1\.self_attention\.core_attention/0)",
     "none",
     [](const BugSetting& run) { return run.layers >= 2; }},
    {Bug::kGatherOrder,
     "gather-order",
     "NCCL issue #1906: with the devices numbered 1, 2, ..., 0 an all-gather joined the ranks' "
     "tensors in that order",
     "tp >= 2 with --sp, layers >= 2",
     R"(output/decoder\.layers\.1\.self_attention\.linear_qkv/0)",
     "wrong_order",
     [](const BugSetting& run) { return run.tp >= 2 && run.sequence_parallel && run.layers >= 2; }},
}};

}  // namespace

std::span<const BugEntry> bug_table() {
  return kTable;
}

const BugEntry& find_bug(std::string_view name) {
  const auto* const found =
      std::find_if(kTable.begin(), kTable.end(), [&](const auto& bug) { return bug.name == name; });
  if (found == kTable.end()) {
    std::string names;
    for (const auto& bug : kTable) {
      names += names.empty() ? "" : ", ";
      names += bug.name;
    }
    TTRACE_THROW(UsageError, "bug `", name, "` is none of ", names);
  }
  return *found;
}

void check_bug(Bug bug, const BugSetting& setting) {
  for (const auto& entry : kTable) {
    TTRACE_CHECK(entry.bug != bug || entry.can_act(setting),
                 UsageError,
                 "bug `",
                 entry.name,
                 "` cannot act in this run: it needs ",
                 entry.needs);
  }
}

bool Bugs::skips_output_sum(std::string_view path) const {
  return active_ == Bug::kTpForwardAllreduce && path == kForwardSite;
}

bool Bugs::skips_input_gradient_sum(std::string_view path) const {
  return active_ == Bug::kTpBackwardAllreduce && path == kBackwardSite;
}

bool Bugs::skips_norm_gradient_sum() const {
  return active_ == Bug::kSpNormGrad;
}

int Bugs::data_parallel_divisor(int ranks) const {
  return active_ == Bug::kDpDivisor ? 1 : ranks;
}

double Bugs::output_factor(std::string_view path) const {
  return active_ == Bug::kScaledLinear && path == kScaledSite ? 1.05 : 1.0;
}

std::int64_t Bugs::embedding_mask_end(std::int64_t end) const {
  return active_ == Bug::kEmbeddingMask ? end - 1 : end;
}

bool Bugs::adds_bias_before_sum(std::string_view path) const {
  return active_ == Bug::kRepeatedBias && path == kBiasSite;
}

bool Bugs::repeats_input_gradient_sum(std::string_view path) const {
  return active_ == Bug::kDoubleReduction && path == kDoubleSite;
}

bool Bugs::drops_microbatch(std::int64_t microbatch) const {
  return active_ == Bug::kDroppedMicrobatch && microbatch == 1;
}

bool Bugs::skips_copy_back(std::string_view parameter) const {
  return active_ == Bug::kStaleParameter && parameter == kStaleSite;
}

bool Bugs::takes_local_norm() const {
  return active_ == Bug::kLocalClipNorm;
}

double Bugs::softmax_scale_factor(std::string_view path) const {
  // (0.1 ln 40 + 1)^2, the factor of a context that YaRN made 40 times as long.
  return active_ == Bug::kSoftmaxScale && path == kSoftmaxSite ? 1.87 : 1.0;
}

bool Bugs::rotates_gathered_input(std::string_view path) const {
  return active_ == Bug::kGatherOrder && path == kGatherSite;
}

}  // namespace megatron_mini
