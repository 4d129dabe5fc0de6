// A name that one side alone has.
//
// Thread-safety: plain values.
#pragma once

#include "analysis/findings/names.h"

#include <ttrace/kind.h>

#include <cstddef>
#include <cstdint>
#include <set>
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

// `layers.*.attention.wq.weight 64x64 (param, main_grad; 8 tensors)`
[[nodiscard]] std::string to_string(const UnmatchedName& name);
// `decoder.layers.*.self_attention.linear_qkv.weight 192x64, ...`; empty if nothing is near.
[[nodiscard]] std::string nearest_text(const UnmatchedName& name);

}  // namespace ttrace
