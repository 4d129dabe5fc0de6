// The processes below one of ours, from proc(5).
//
// Thread-safety: free functions that only read.
#pragma once

#include <cstdint>
#include <sys/types.h>
#include <vector>

namespace ttrace::cli {

// All living processes below `root`, parents first.
[[nodiscard]] std::vector<pid_t> descendants_of(pid_t root);

// Bytes of memory that a process and all below it occupy, each shared page counted once
// (proportional set size); 0 for one that is gone.
[[nodiscard]] std::uint64_t memory_of_tree(pid_t root);

// Bytes that new programs may take without swapping (MemAvailable).
[[nodiscard]] std::uint64_t available_memory();

}  // namespace ttrace::cli
