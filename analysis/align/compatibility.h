// Decides whether two traces may be compared at all, and lists harmless differences.
#pragma once

#include "analysis/align/selection.h"
#include "trace/file/trace_reader.h"

#include <string>
#include <vector>

namespace ttrace {

// Throws UsageError naming the first difference of `model` or `data`, or the sets of steps where
// those selected differ: a step that only one side ran has nothing to be compared with, and leaving
// it out silently would hide what the user asked for. Where one side was renamed, keys that only
// one program has are remarks. Other names of the model's classes always are. Throws as well that
// F32 products were rounded on one side alone. Returns remarks on precision, passes, versions and
// the machines.
[[nodiscard]] std::vector<std::string> check_comparable(const Trace& reference,
                                                        const Trace& candidate,
                                                        const Selection& selection = {});

// Throws UsageError that the reference followed another candidate's choices. Requires: the
// candidate as its program wrote it, see digest_of_choices().
void require_followed(const Trace& reference, const Trace& candidate);

}  // namespace ttrace
