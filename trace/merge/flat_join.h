// Joins the flat ranges that ranks hold of one local tensor, as far as they exist.
//
// Ranges that follow each other are bytes one after another. Joining them gives an ordinary shard,
// which is merged like any other. If a range is missing, the rest is a set of boxes.
//
// Thread-safety: values and free functions without shared state; call from any thread.
#pragma once

#include "trace/merge/copies.h"
#include "trace/merge/merge_finding.h"
#include "trace/merge/shard.h"

#include <deque>
#include <span>
#include <string>
#include <vector>

namespace ttrace {

// Copies of one id, with what they refer to.
struct Copies {
  std::vector<Copy> list;
  std::deque<std::vector<DimPlacement>> dims;  // of boxes; a deque keeps addresses
  std::deque<std::vector<std::byte>> buffers;  // of joined tensors
  std::vector<MergeFinding> disagreements;     // between ranges that overlap
};

// Adds what the shards hold together. Elements that several of them hold must agree; the lowest
// rank's count. `prefix` begins messages. Requires: flat ranges of one element type, partial index
// and dims, which differ in rank; ascending ranks.
void join_flat(std::span<const Shard* const> shards, const std::string& prefix, Copies& copies);

}  // namespace ttrace
