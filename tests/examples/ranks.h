// The ranks that run a test program together.
#pragma once

#include "process_group_mpi.h"

namespace megatron_mini::testing {

// Lives from before the first case until after the last.
[[nodiscard]] MpiRuntime& runtime();

[[nodiscard]] inline const Group& world() {
  return runtime().world();
}

}  // namespace megatron_mini::testing
