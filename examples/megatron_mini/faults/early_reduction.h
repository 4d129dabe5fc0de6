// Gradients that are summed over ranks before all of a step's micro-batches have given theirs.
#pragma once

#include "fault.h"

namespace megatron_mini::faults {

// Before the last micro-batch's are there; these stay this rank's own.
void reduce_before_last_microbatch(Parts& parts, const Size& size);

// After as many backward passes as there are micro-batches, whatever the number of virtual stages;
// later gradients are divided alike and stay this rank's own.
void reduce_after_first_virtual_stage(Parts& parts, const Size& size);

}  // namespace megatron_mini::faults
