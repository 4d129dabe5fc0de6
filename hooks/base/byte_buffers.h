// Memory of copied tensors on their way to the writer, kept for the next copy of the same size: a
// step records tensors of few sizes over and over, and memory that comes from the system each time
// costs page faults and zeroing.
//
// Thread-safety: call from any thread.
#pragma once

#include <cstddef>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace ttrace {

// The largest number of bytes of copied tensors in the writer's queue. That is several
// micro-batches of a small model, or about a second of a disk's work, and little compared with the
// memory that a model with larger tensors needs for itself.
inline constexpr std::size_t kQueueBytes = std::size_t{256} << 20;

class ByteBuffers {
 public:
  // The one object of the process, because copies are made where no session is at hand. It outlives
  // every static object.
  [[nodiscard]] static ByteBuffers& of_process();

  // `size` bytes of any value.
  [[nodiscard]] std::vector<std::byte> take(std::size_t size);
  // Keeps at most kQueueBytes.
  void give_back(std::vector<std::byte> buffer);
  // Frees what is kept.
  void clear();
  // Bytes that are kept.
  [[nodiscard]] std::size_t kept() const;

 private:
  mutable std::mutex mutex_;
  std::unordered_map<std::size_t, std::vector<std::vector<std::byte>>> kept_;  // by size
  std::size_t kept_bytes_ = 0;
};

}  // namespace ttrace
