// The fixed rules by which people compare tensors of two runs today, applied to the same traces.
//
// Each rule looks at one pair of tensors and has one threshold; a run is flagged when any pair
// fails. Sources:
// - assert_close: torch.testing.assert_close's default rtol and atol of the pair's element type.
// - cosine: cosine similarity of the flattened tensors, at least 0.999.
// - frobenius: ||c - r|| / ||r||, at most 1e-2.
// - sglang: 1 - 2 <c, r> / (<c, c> + <r, r>), at most 1e-3; SGLang's debug_utils/dump_comparator,
//   which has it from DeepGEMM.
// - depth_bound: ||c - r|| / ||r|| at most k C^(L + 1 - l) eps with k = 4, C = 1.03, layer l of L
//   counted from 1 and eps of the precision (of BF16 for FP8); theorem 5.3 of the TTrace paper as
//   Megatron-LM's and BioNeMo's tests of gradients use it. What stands before the layers counts as
//   layer 1, what stands behind them as layer L. Below a norm of 1e-10 the error is taken
//   absolutely.
// Two tensors of zeros pass every rule, although 0 / 0 would fail some.
//
// Thread-safety: values and free functions without shared state.
#pragma once

#include "trace/file/trace_reader.h"

#include <ttrace/element_type.h>
#include <ttrace/tensor_id.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace ttrace::testing {

inline constexpr std::size_t kRules = 5;

struct RuleText {
  std::string_view name;       // in JSON
  std::string_view threshold;  // for people
};

inline constexpr std::array<RuleText, kRules> kRuleTexts = {
    {{"assert_close", "`torch.testing.assert_close`, defaults"},
     {"cosine", "cosine >= 0.999"},
     {"frobenius", "relative Frobenius error <= 1e-2"},
     {"sglang", "SGLang `rel_diff` <= 1e-3"},
     {"depth_bound", "4 * 1.03^(L+1-l) * eps"}}};

// Row-major tensors of one shape.
struct RulePair {
  ElementType type = ElementType::kF32;  // in which it is stored; decides rtol and atol
  ElementType reference_type = ElementType::kF32;
  const void* reference = nullptr;
  ElementType candidate_type = ElementType::kF32;
  const void* candidate = nullptr;
  std::int64_t count = 0;
  double depth_bound = 0.0;
};

// Whether each rule fails.
[[nodiscard]] std::array<bool, kRules> failing_rules(const RulePair& pair);

// k C^(L + 1 - l) eps for a tensor at `path`. `precision` as in a manifest.
[[nodiscard]] double depth_bound(std::string_view path,
                                 std::int64_t layers,
                                 std::string_view precision);

// By rule: the first tensor that fails, in the reference's order; empty if none does. A tensor that
// only one side has, or that cannot be merged, is skipped. The reference's manifest states the
// number of layers.
using RuleHits = std::array<std::string, kRules>;
[[nodiscard]] RuleHits apply_rules(const Trace& reference, const Trace& candidate);

}  // namespace ttrace::testing
