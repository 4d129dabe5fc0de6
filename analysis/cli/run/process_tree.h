// The processes below one of ours, from proc(5).
//
// Thread-safety: free functions that only read.
#pragma once

#include <chrono>
#include <cstdint>
#include <sys/types.h>
#include <vector>

namespace ttrace::cli {

// All living processes below `root`, parents first, but no keeper and nothing below one: these end
// with the check (keeper.h).
[[nodiscard]] std::vector<pid_t> descendants_of(pid_t root);

// Bytes of memory that a process and all below it occupy, each shared page counted once
// (proportional set size); 0 for one that is gone.
[[nodiscard]] std::uint64_t memory_of_tree(pid_t root);

// The memory of a tree while it runs, looked at five times a second at most.
class TreeMemory {
 public:
  // `not_yet`: from when on it counts; by default it is looked at at once.
  explicit TreeMemory(std::chrono::steady_clock::time_point not_yet = {}) : sampled_(not_yet) {}

  void sample(pid_t root);
  [[nodiscard]] std::uint64_t now() const { return now_; }
  [[nodiscard]] std::uint64_t most() const { return most_; }

 private:
  std::chrono::steady_clock::time_point sampled_;
  std::uint64_t now_ = 0;
  std::uint64_t most_ = 0;
};

// Bytes that new programs may take without swapping (MemAvailable).
[[nodiscard]] std::uint64_t available_memory();

}  // namespace ttrace::cli
