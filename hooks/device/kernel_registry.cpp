#include "hooks/device/kernel_registry.h"

#include "hooks/device/cuda_library.h"

#include <array>
#include <mutex>
#include <utility>

namespace ttrace {
namespace {

struct Registry {
  std::mutex mutex;
  std::array<std::unique_ptr<const DeviceKernels>, c10::COMPILE_TIME_MAX_DEVICE_TYPES> kernels;
  bool looked_for_cuda = false;
};

// Never destroyed: a training program may end while a hook runs.
Registry& registry() {
  static Registry* const only = new Registry;
  return *only;
}

std::size_t number_of(c10::DeviceType type) {
  return static_cast<std::size_t>(type);
}

}  // namespace

const DeviceKernels* kernels_of(const c10::Device& device) {
  if (device.is_cpu()) {
    return nullptr;
  }
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  auto& kernels = all.kernels[number_of(device.type())];
  if (device.is_cuda() && kernels == nullptr && !std::exchange(all.looked_for_cuda, true)) {
    kernels = open_cuda_library();
  }
  return kernels.get();
}

void register_kernels(c10::DeviceType type, std::unique_ptr<const DeviceKernels> kernels) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  all.kernels[number_of(type)] = std::move(kernels);
}

}  // namespace ttrace
