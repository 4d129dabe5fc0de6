#include "bugs.h"

#include <ttrace/error.h>

#include <algorithm>
#include <array>

namespace megatron_mini {

namespace {

constexpr std::string_view kForwardSite = "decoder.layers.1.mlp.linear_fc2";
constexpr std::string_view kBackwardSite = "decoder.layers.1.mlp.linear_fc1";
constexpr std::string_view kScaledSite = "decoder.layers.1.self_attention.linear_proj";

constexpr std::array<BugEntry, 5> kTable = {{
    {Bug::kTpForwardAllreduce,
     "tp-forward-allreduce",
     "Megatron-LM PR #5338: the reducing helper summed a contiguous copy of its input and handed "
     "back the input itself, so that a row-parallel linear returned its own addend",
     "tp >= 2, layers >= 2",
     R"(output/decoder\.layers\.1\.mlp\.linear_fc2/0)",
     [](const BugSetting& run) { return run.tp >= 2 && run.layers >= 2; }},
    {Bug::kTpBackwardAllreduce,
     "tp-backward-allreduce",
     "Megatron-LM commit 5fffdfc737: the autograd function of a column-parallel linear with frozen "
     "weight computed its input's gradient and never summed it over tp",
     "tp >= 2, layers >= 2",
     R"(grad_output/decoder\.layers\.1\.pre_mlp_layernorm/0)",
     [](const BugSetting& run) { return run.tp >= 2 && run.layers >= 2; }},
    {Bug::kSpNormGrad,
     "sp-norm-grad",
     "Megatron-LM issue #1446, TransformerEngine PR #1528: norm weights lost the mark that asks "
     "for their gradients to be summed over the ranks that share a sequence",
     "tp >= 2 with --sp",
     R"(main_grad/decoder\.(layers\.\d+\.(input_layernorm|pre_mlp_layernorm)|final_layernorm))"
     R"(\.(weight|bias)/0)",
     [](const BugSetting& run) { return run.tp >= 2 && run.sequence_parallel; }},
    {Bug::kDpDivisor,
     "dp-divisor",
     "Megatron-LM commits 3bdcbbbe5d and 3373641ff1: gradients were summed over data-parallel "
     "ranks with a divisor that did not match the number of ranks",
     "dp >= 2",
     "main_grad/",
     [](const BugSetting& run) { return run.dp >= 2; }},
    {Bug::kScaledLinear,
     "scaled-linear",
     "synthetic: a projection's output is 5 % too large, to measure how small an error is found",
     "layers >= 2",
     R"(output/decoder\.layers\.1\.self_attention\.linear_proj/0)",
     [](const BugSetting& run) { return run.layers >= 2; }},
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

int Bugs::data_parallel_divisor(int dp) const {
  return active_ == Bug::kDpDivisor ? 1 : dp;
}

double Bugs::output_factor(std::string_view path) const {
  return active_ == Bug::kScaledLinear && path == kScaledSite ? 1.05 : 1.0;
}

}  // namespace megatron_mini
