// Parts that are missing, overlap, leave gaps, or whose copies disagree.
//
// Thread-safety: free functions without shared state.
#pragma once

#include "trace/merge/merge_finding.h"
#include "trace/merge/parts.h"

#include <ttrace/placement.h>

#include <string>
#include <vector>

namespace ttrace {

// Each adds what it finds to `findings`; `prefix` begins messages.

void find_missing_addends(const Addends& addends,
                          const Placement& placement,
                          std::vector<MergeFinding>& findings);
// Gaps and overlaps where the parts of one addend do not tile `space`.
void find_gaps_and_overlaps(const std::vector<Part>& parts,
                            const Region& space,
                            const std::string& prefix,
                            std::vector<MergeFinding>& findings);
void find_disagreement(const Part& part,
                       const std::string& prefix,
                       std::vector<MergeFinding>& findings);

}  // namespace ttrace
