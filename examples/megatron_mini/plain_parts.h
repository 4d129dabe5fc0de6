// The parts of the correct program.
#pragma once

#include "parts.h"

namespace megatron_mini {

// Every maker makes the part that it is named after.
[[nodiscard]] Parts plain_parts();

}  // namespace megatron_mini
