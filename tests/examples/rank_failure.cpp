// Rank 1 throws while the others wait for it in a barrier: the job must end, not hang.
#include "process_group_mpi.h"

#include <iostream>
#include <stdexcept>

int main(int argc, char** argv) {
  try {
    megatron_mini::MpiRuntime runtime(&argc, &argv);
    if (runtime.world().rank == 1) {
      throw std::runtime_error("planted failure");
    }
    megatron_mini::barrier(runtime.world());
    std::cout << "passed the barrier\n";
  } catch (const std::exception&) {
    return 1;
  }
  return 0;
}
