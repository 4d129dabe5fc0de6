// Why there is no GPU to test on.
#pragma once

#include "gpu/require_gpu.h"

#include <ATen/DeviceAccelerator.h>

#include <dlfcn.h>
#include <string>

namespace ttrace::testing {

// A program in C++ has CUDA once the library of its kernels is loaded, which a linker may leave
// out. Empty where there is a GPU.
inline std::string why_no_gpu() {
  if (dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_GLOBAL) == nullptr) {
    return std::string("this torch has no CUDA: ") + dlerror();
  }
  if (at::accelerator::getAccelerator(false) != c10::DeviceType::CUDA) {
    return "torch sees no GPU";
  }
  return at::accelerator::deviceCount() == 0 ? "torch sees no GPU" : "";
}

}  // namespace ttrace::testing
