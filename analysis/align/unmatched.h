// Names that one side alone has, and what they may be called on the other one.
//
// Thread-safety: free functions without shared state.
#pragma once

#include "analysis/align/matching.h"
#include "analysis/findings/names.h"

#include <ttrace/tensor_id.h>

#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace ttrace {

// A name of the other side.
struct NearName {
  std::string path;
  std::vector<std::int64_t> shape;
};

// Tensors of one name in all layers, kinds, steps and micro-batches.
struct UnmatchedName {
  Names side = Names::kReference;  // that has it
  std::string path;                // numbers are stars: `decoder.layers.*.mlp`
  std::set<Kind> kinds;
  std::size_t tensors = 0;
  std::vector<std::int64_t> shape;  // logical, of the first
  std::vector<NearName> nearest;    // unmatched ones of the other side, best first; at most three
};

// Of the tensors that lack on one side, the reference's names first, in the order of `matches`.
//
// A name is near another one that has a kind in common with it where few parts of the path differ,
// and those by few letters, and the more so with the same shape or number of elements.
[[nodiscard]] std::vector<UnmatchedName> find_unmatched(std::span<const Match* const> matches);

// `layers.*.attention.wq.weight 64x64 (param, main_grad; 8 tensors)`
[[nodiscard]] std::string to_string(const UnmatchedName& name);
// `decoder.layers.*.self_attention.linear_qkv.weight 192x64, ...`; empty where nothing is near.
[[nodiscard]] std::string nearest_text(const UnmatchedName& name);

}  // namespace ttrace
