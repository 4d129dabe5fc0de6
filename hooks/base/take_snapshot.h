// Takes snapshots of torch tensors.
//
// Thread-safety: call from any thread; configure_snapshots() and release_snapshot_memory() while no
// step is traced.
#pragma once

#include "hooks/base/snapshot.h"

#include <cstddef>

namespace at {
class Tensor;
}

namespace ttrace {

struct SnapshotOptions {
  bool blocking = false;       // plain copies, for which the host waits (TTRACE_SYNC=stream)
  std::size_t ring_bytes = 0;  // of device memory, and of pinned host memory (TTRACE_RING_BYTES)
};

void configure_snapshots(const SnapshotOptions& options);
// Frees the rings. Bytes that are still on their way keep their part of them.
void release_snapshot_memory();

// The values that the current stream would read now: the program may overwrite or free the tensor
// right after. Values of CPU tensors are here at once. Requires: unreadable(tensor) is empty.
[[nodiscard]] Snapshot snapshot(const at::Tensor& tensor);

}  // namespace ttrace
