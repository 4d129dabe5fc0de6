#include "hooks/base/byte_buffers.h"

#include <utility>

namespace ttrace {
namespace {

// The bytes that the allocator itself keeps in reserve.
constexpr std::size_t kSmall = std::size_t{16} << 10;

}  // namespace

ByteBuffers& ByteBuffers::of_process() {
  static auto* const buffers = new ByteBuffers;
  return *buffers;
}

std::vector<std::byte> ByteBuffers::take(std::size_t size) {
  if (size >= kSmall) {
    const std::lock_guard lock(mutex_);
    const auto found = kept_.find(size);
    if (found != kept_.end() && !found->second.empty()) {
      std::vector<std::byte> buffer = std::move(found->second.back());
      found->second.pop_back();
      kept_bytes_ -= size;
      return buffer;
    }
  }
  return std::vector<std::byte>(size);
}

void ByteBuffers::give_back(std::vector<std::byte> buffer) {
  const std::size_t size = buffer.size();
  if (size < kSmall) {
    return;
  }
  const std::lock_guard lock(mutex_);
  if (kept_bytes_ + size <= kQueueBytes) {
    kept_bytes_ += size;
    kept_[size].push_back(std::move(buffer));
  }
}

void ByteBuffers::clear() {
  const std::lock_guard lock(mutex_);
  kept_.clear();
  kept_bytes_ = 0;
}

std::size_t ByteBuffers::kept() const {
  const std::lock_guard lock(mutex_);
  return kept_bytes_;
}

}  // namespace ttrace
