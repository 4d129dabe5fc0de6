#include "hooks/base/take_snapshot.h"

#include "hooks/base/device_ring.h"
#include "hooks/base/tensor_access.h"

#include <ttrace/log.h>

#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>

#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <unordered_map>

namespace ttrace {
namespace {

// Of the process, because at most one session is attached. It outlives every static object.
struct Rings {
  std::mutex mutex;
  SnapshotOptions options;
  std::unordered_map<c10::Device, std::unique_ptr<DeviceRing>> by_device;  // null: none can be made
};

Rings& rings() {
  static auto* const instance = new Rings;
  return *instance;
}

// Null if the device offers too little, or has no memory left.
std::unique_ptr<DeviceRing> make_ring(c10::Device device, std::size_t bytes) {
  std::string reason = "it has no memory that the host shares with it";
  try {
    if (auto ring = DeviceRing::of(device, bytes)) {
      return ring;
    }
  } catch (const c10::Error& error) {
    reason = error.what_without_backtrace();
  } catch (const std::bad_alloc&) {
    reason = "there is no memory left for TTRACE_RING_BYTES=" + std::to_string(bytes);
  }
  log(LogLevel::kWarning,
      "the host waits for every copy from " + device.str() + ", because " + reason);
  return nullptr;
}

// Null where a plain copy has to do.
std::unique_ptr<ArrivingBytes> copy_through_ring(const at::Tensor& tensor) {
  Rings& all = rings();
  const std::lock_guard lock(all.mutex);
  if (all.options.blocking || all.options.ring_bytes == 0) {
    return nullptr;
  }
  const c10::Device device = tensor.device();
  auto found = all.by_device.find(device);
  if (found == all.by_device.end()) {
    found = all.by_device.emplace(device, make_ring(device, all.options.ring_bytes)).first;
  }
  return found->second == nullptr ? nullptr : found->second->copy(tensor);
}

}  // namespace

void configure_snapshots(const SnapshotOptions& options) {
  Rings& all = rings();
  const std::lock_guard lock(all.mutex);
  all.options = options;
}

void release_snapshot_memory() {
  Rings& all = rings();
  const std::lock_guard lock(all.mutex);
  all.by_device.clear();
}

Snapshot snapshot(const at::Tensor& tensor) {
  if (!tensor.is_cpu() && tensor.numel() > 0) {
    const Unobserved unobserved;
    const at::NoGradGuard no_grad;
    if (auto bytes = copy_through_ring(tensor)) {
      return {element_type_of(tensor).value(), shape_of(tensor), SnapshotBytes(std::move(bytes))};
    }
  }
  return copy_tensor(tensor);
}

}  // namespace ttrace
