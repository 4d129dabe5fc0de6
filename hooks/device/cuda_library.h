// Opens libttrace_cuda.so.
#pragma once

#include "hooks/device/device_kernels.h"

#include <memory>

namespace ttrace {

// Null if there is no such library, if it belongs to another TTrace, or if this torch does not
// report CUDA's current stream; a warning says which.
[[nodiscard]] std::unique_ptr<const DeviceKernels> open_cuda_library();

}  // namespace ttrace
