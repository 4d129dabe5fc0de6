// Elements of a candidate's tensor that are the reference's, because only that one has padding
// there.
//
// Thread-safety: a free function without shared state.
#pragma once

#include "trace/merge/merge.h"
#include "trace/merge/shard.h"

#include <span>

namespace ttrace {

// Gives `target` the values that `whole`, the merged `shards`, borrows from the reference: no
// operator of the candidate computed them, so that they say nothing of one. Changes nothing where
// the shapes differ.
void set_borrowed(std::span<const Shard> shards, const MergeResult& whole, MergeResult& target);

}  // namespace ttrace
