// Opens libttrace_cuda.so.
#pragma once

#include "hooks/device/device_kernels.h"

#include <memory>

namespace ttrace {

// Null where there is no such library, where it belongs to another TTrace, or where this torch does
// not tell CUDA's streams; a warning says which.
[[nodiscard]] std::unique_ptr<const DeviceKernels> open_cuda_library();

}  // namespace ttrace
