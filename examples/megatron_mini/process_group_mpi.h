// MPI's life in this process, and c10d process groups on top of it.
//
// The backend knows the operations that collectives.h uses, on contiguous tensors of f64, f32, bf16
// and i64. Tensors of an accelerator go by way of the host. bf16 sums add two ranks' values in f32
// and round to nearest even after every addition.
//
// Thread-safety: one thread at a time (MPI_THREAD_SERIALIZED). Autograd's nodes run in the thread
// that calls backward on a CPU, and for an accelerator in a thread that it waits for.
#pragma once

#include "collectives.h"

#include <c10/core/DeviceType.h>
#include <c10/util/intrusive_ptr.h>

#include <functional>
#include <memory>
#include <string>

namespace c10d {
class Backend;
class ProcessGroup;
}  // namespace c10d

namespace megatron_mini {

// Makes another backend for the group of this name, which no other group has.
using BackendMaker =
    std::function<c10::intrusive_ptr<c10d::Backend>(const std::string& name, int rank, int size)>;

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
  // This process among those of its machine, and whether these are all.
  [[nodiscard]] int local_rank() const;
  [[nodiscard]] bool is_one_machine() const;

  // Collective over all ranks: tensors of this type of device go by MPI, or by what `make` makes
  // for groups of several ranks, in the world and in all groups that are split from it later.
  void serve(c10::DeviceType device, BackendMaker make = nullptr);

  // Collective over all ranks: ranks of equal `color` form a group, ordered by world rank. The
  // group is registered under `name` for as long as this object lives.
  [[nodiscard]] Group split(const std::string& name, int color);

 private:
  void add_backend(c10d::ProcessGroup& group) const;

  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace megatron_mini
