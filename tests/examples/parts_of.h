// The parts of a run, for tests of what a bug does and of what is right without one.
#pragma once

#include "faults/planted.h"
#include "plain_parts.h"

#include <string>

namespace megatron_mini::testing {

// An empty name: none.
[[nodiscard]] inline Parts parts_of(const std::string& bug) {
  return bug.empty() ? plain_parts() : faults::parts_with_bug(bug);
}

}  // namespace megatron_mini::testing
