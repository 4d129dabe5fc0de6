// The instruction sets that this processor has, so that a test holds all of them against each
// other.
#pragma once

#include "trace/base/instruction_set.h"

#include <vector>

namespace ttrace {

// The baseline first, the fastest last.
inline std::vector<InstructionSet> sets_of_this_processor() {
  std::vector<InstructionSet> sets;
  for (const InstructionSet set :
       {InstructionSet::kBaseline, InstructionSet::kAvx2, InstructionSet::kAvx512}) {
    if (set <= best_instruction_set()) {
      sets.push_back(set);
    }
  }
  return sets;
}

}  // namespace ttrace
