// The kernels of a device, by its type.
//
// For CUDA they are in libttrace_cuda.so, which is opened when the first CUDA tensor asks for them:
// the file that LIBTTRACE_CUDA names, else the one next to this library. Where it is missing, one
// warning says so, there are no kernels, and values go to the host as those of other devices do.
//
// Thread-safety: call from any thread.
#pragma once

#include "hooks/device/device_kernels.h"

#include <c10/core/Device.h>

#include <memory>

namespace ttrace {

// Null for a device without kernels, the CPU among them.
[[nodiscard]] const DeviceKernels* kernels_of(const c10::Device& device);

// For tests, and before a tensor of this device is traced: what kernels_of() returns from now on.
void register_kernels(c10::DeviceType type, std::unique_ptr<const DeviceKernels> kernels);

}  // namespace ttrace
