// Names that one side alone has, and what they may be called on the other one.
//
// Thread-safety: free functions without shared state.
#pragma once

#include "analysis/align/matching.h"
#include "analysis/findings/unmatched_name.h"

#include <span>
#include <string>
#include <vector>

namespace ttrace {

// The names of tensors that one side did not record, the reference's first, in the order of
// `matches`.
//
// A name is near another one that has a kind in common with it where few parts of the path differ,
// and those by few letters, and the more so with the same shape or number of elements.
[[nodiscard]] std::vector<UnmatchedName> find_unmatched(std::span<const Match* const> matches);

// Throws UsageError, which names the nearest names, where no tensor is in both traces.
void require_common_id(std::span<const Match> matches,
                       const Trace& reference,
                       const Trace& candidate);

}  // namespace ttrace
