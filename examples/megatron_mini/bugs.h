// Silent bugs that can be switched on, one at a time; each was found in a real training framework
// unless its source says otherwise.
//
// A layer asks the Bugs object that it is built with whether its own spot is affected. Without a
// bug every question has the harmless answer.
//
// A hint is one of wrong_factor (a multiple of the reference), missing_reduction (ranks hold their
// own addends), repeated_reduction, repeated_bias, missing_microbatch, stale (an earlier value, bit
// for bit), wrong_order (shards exchanged), localised (some rows only), replicas_diverge,
// local_norm (over this rank's tensors only), none (the size of the error and nothing else).
//
// Thread-safety: values.
#pragma once

#include "config.h"

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace megatron_mini {

enum class Bug : std::uint8_t {
  kNone,
  kTpForwardAllreduce,
  kTpBackwardAllreduce,
  kSpNormGrad,
  kDpDivisor,
  kScaledLinear,
  kEmbeddingMask,
  kRepeatedBias,
  kDoubleReduction,
  kDroppedMicrobatch,
  kStaleParameter,
  kLocalClipNorm,
  kSoftmaxScale,
  kGatherOrder,
};

// The run in which a bug is to act.
struct BugSetting {
  int tp = 1;
  int dp = 1;
  bool sequence_parallel = false;
  std::int64_t layers = 1;
  std::int64_t micro_batches = 1;  // per step, over all ranks
  Precision precision = Precision::kBF16;
  Loss loss = Loss::kMean;
};

struct BugEntry {
  Bug bug = Bug::kNone;
  std::string_view name;
  std::string_view source;    // where it was found and how it came about
  std::string_view needs;     // layout in which it acts
  std::string_view expected;  // regular expression that is found in the first divergence's id
  std::string_view hint;      // regular expression for the signature that a diagnosis should name
  bool (*can_act)(const BugSetting&) = nullptr;
};

// All bugs that can be asked for.
[[nodiscard]] std::span<const BugEntry> bug_table();

// Throws ttrace::UsageError with the list of names.
[[nodiscard]] const BugEntry& find_bug(std::string_view name);

// Throws ttrace::UsageError with what it needs where the bug cannot act in that run.
void check_bug(Bug bug, const BugSetting& setting);

class Bugs {
 public:
  explicit Bugs(Bug active = Bug::kNone) : active_(active) {}

  // A row-parallel linear returns its addend instead of the sum over tp.
  [[nodiscard]] bool skips_output_sum(std::string_view path) const;
  // A column-parallel linear does not sum its input's gradient over tp.
  [[nodiscard]] bool skips_input_gradient_sum(std::string_view path) const;
  // Gradients of norm parameters stay what this rank's part of the sequence gave.
  [[nodiscard]] bool skips_norm_gradient_sum() const;
  // What gradients are divided by before they are summed over `ranks` ranks with other tokens.
  [[nodiscard]] int data_parallel_divisor(int ranks) const;
  // What a linear's output is multiplied by.
  [[nodiscard]] double output_factor(std::string_view path) const;
  // First token behind those that a rank looks up, where `end` is the right one.
  [[nodiscard]] std::int64_t embedding_mask_end(std::int64_t end) const;
  // A row-parallel linear adds its bias on every rank, before the sum over tp.
  [[nodiscard]] bool adds_bias_before_sum(std::string_view path) const;
  // A column-parallel linear sums its input's gradient over tp twice.
  [[nodiscard]] bool repeats_input_gradient_sum(std::string_view path) const;
  // The gradients of this micro-batch, by global number, are not added to the main gradients.
  [[nodiscard]] bool drops_microbatch(std::int64_t microbatch) const;
  // A parameter is not copied from its updated master.
  [[nodiscard]] bool skips_copy_back(std::string_view parameter) const;
  // The gradient norm counts what this rank holds and nothing else.
  [[nodiscard]] bool takes_local_norm() const;
  // What the scale of an attention's scores is multiplied by.
  [[nodiscard]] double softmax_scale_factor(std::string_view path) const;
  // A column-parallel linear gathers its input's rows with the ranks rotated by one.
  [[nodiscard]] bool rotates_gathered_input(std::string_view path) const;

 private:
  Bug active_;
};

}  // namespace megatron_mini
