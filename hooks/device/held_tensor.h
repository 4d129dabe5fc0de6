// A copy of a tensor that stays on its device, and a tensor's digest without a copy.
//
// Thread-safety: free functions without shared state; call from any thread.
#pragma once

#include "hooks/base/device_values.h"

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <memory>
#include <vector>

namespace ttrace {

// Copies the tensor on its device's current stream; the program may overwrite it right after.
// Requires: kernels_of(tensor.device()), unreadable(tensor) is empty.
[[nodiscard]] std::unique_ptr<const DeviceValues> hold_on_device(const at::Tensor& tensor);

// Whether a tensor lies on a device that has kernels and holds just these row-major bytes. Waits
// for the current stream. False for tensors on other devices, whatever they hold.
[[nodiscard]] bool holds_on_device(const at::Tensor& tensor, const std::vector<std::byte>& bytes);

}  // namespace ttrace
