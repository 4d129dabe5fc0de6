// MPI's life in this process, and c10d process groups on top of it.
//
// The backend knows the operations that collectives.h uses, on contiguous CPU tensors of f64, f32,
// bf16 and i64. bf16 sums add two ranks' values in f32 and round to nearest even after every
// addition.
//
// Thread-safety: one thread at a time (MPI_THREAD_SERIALIZED); autograd's CPU nodes run in the
// thread that calls backward.
#pragma once

#include "collectives.h"

#include <memory>
#include <string>

namespace megatron_mini {

// Initialises MPI on construction and finalises it on destruction. Where the destructor runs
// because an exception unwinds, it aborts the job instead: the other ranks wait in a collective
// that this rank will never join, and finalising would wait for them. Without mpirun there is one
// rank.
class MpiRuntime {
 public:
  MpiRuntime(int* argc, char*** argv);
  ~MpiRuntime();
  MpiRuntime(const MpiRuntime&) = delete;  // one per process
  MpiRuntime& operator=(const MpiRuntime&) = delete;

  // All ranks.
  [[nodiscard]] const Group& world() const;

  // Collective over all ranks: ranks of equal `color` form a group, ordered by world rank. The
  // group is registered under `name` for as long as this object lives.
  [[nodiscard]] Group split(const std::string& name, int color);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace megatron_mini
