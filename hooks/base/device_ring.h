// Brings a device's tensors to the host. It waits only where it must.
//
// The current stream copies a tensor into a ring of device memory, so that the program may
// overwrite or free it right after. A stream of our own copies the bytes on into a ring of pinned
// host memory. Events order both; neither the host nor any stream of the program waits for more
// than it would wait for without us. The rings are bounded:
//  - Memory of the device ring is used again when its bytes have left. The current stream waits for
//    that, the host does not.
//  - Memory of the pinned ring is used again when its bytes have been read. If the oldest ones have
//    not, the caller waits for them and moves them elsewhere, so that a caller who keeps many
//    tensors waits for nobody.
// Only memory of the rings is ever recorded on streams. The program's is neither held nor marked.
//
// Thread-safety: copy() by one thread at a time; what it returns from any thread.
#pragma once

#include "hooks/base/snapshot.h"

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

namespace ttrace {

class DeviceRing {
 public:
  // Returns null for a device whose host memory nobody can pin. `capacity`: bytes of each ring.
  [[nodiscard]] static std::unique_ptr<DeviceRing> of(c10::Device device, std::size_t capacity);
  ~DeviceRing();
  DeviceRing(const DeviceRing&) = delete;  // owns memory that others point to
  DeviceRing& operator=(const DeviceRing&) = delete;

  // The tensor's bytes as the current stream would read them now. Larger tensors than the rings go
  // through them in pieces. REQUIRES: a readable tensor of this device that has elements.
  [[nodiscard]] std::unique_ptr<ArrivingBytes> copy(const at::Tensor& tensor);

 private:
  class Slot;
  class Pieces;

  DeviceRing(c10::Device device, std::size_t capacity, at::Tensor pinned);

  [[nodiscard]] std::shared_ptr<Slot> copy_piece(const at::Tensor& piece,
                                                 const c10::Stream& stream);
  // The position of `size` bytes that `stream` may write to.
  [[nodiscard]] std::uint64_t make_room(std::size_t size, const c10::Stream& stream);
  void welcome(const c10::Stream& stream);

  const c10::Device device_;
  const std::size_t capacity_;
  const c10::Stream side_;          // of our own
  at::Tensor on_device_, pinned_;   // bytes of the rings
  c10::Event ready_;                // the device ring's memory may be written to
  c10::Event copied_;               // the last piece is in the device ring
  std::vector<c10::Stream> users_;  // streams that have written to the device ring
  // Positions count on over all rounds. A piece lies at its position modulo the capacity.
  std::uint64_t end_ = 0;
  std::deque<std::shared_ptr<Slot>> slots_;  // not used again yet, the oldest first
};

}  // namespace ttrace
