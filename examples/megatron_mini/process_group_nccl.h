// NCCL for the tensors of GPUs, through torch's own c10d::ProcessGroupNCCL. MPI starts the ranks
// and carries what is on the CPU.
//
// Two ranks' communicator takes their messages in the order in which they were begun, whatever
// their direction; transfers.h and pass_on() are written for that.
#pragma once

#include "process_group_mpi.h"

namespace megatron_mini {

// Collective over all ranks, which meet at a store of the first one. Throws UsageError where this
// program was built without NCCL, on all ranks. The store lives as long as what is returned.
[[nodiscard]] BackendMaker nccl_backends(const MpiRuntime& runtime);

// Throws the same UsageError; communicates nothing.
void check_has_nccl();

}  // namespace megatron_mini
