#include "hooks/base/snapshot.h"

#include "hooks/base/byte_buffers.h"

#include <algorithm>
#include <utility>

namespace ttrace {

void SnapshotBytes::hand_to(const ArrivingBytes::Use& use) && {
  if (arriving_ != nullptr) {
    arriving_->read(use);
    arriving_.reset();
    return;
  }
  use(here_);
  ByteBuffers::of_process().give_back(std::move(here_));
}

std::vector<std::byte> SnapshotBytes::take() && {
  if (arriving_ == nullptr) {
    return std::move(here_);
  }
  std::vector<std::byte> result;
  arriving_->read([&](std::span<const std::byte> bytes) {
    result = ByteBuffers::of_process().take(bytes.size());
    std::copy(bytes.begin(), bytes.end(), result.begin());
  });
  arriving_.reset();
  return result;
}

}  // namespace ttrace
