#include "device.h"

#include <ttrace/error.h>

#include <ATen/DeviceAccelerator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/util/Exception.h>

#include <dlfcn.h>

namespace ttrace::reference {
namespace {

c10::DeviceType parse(const std::string& type) {
  try {
    if (const c10::Device device(type); !device.has_index()) {
      return device.type();
    }
  } catch (const c10::Error&) {  // its message lists all types that torch ever had
  }
  TTRACE_THROW(UsageError, "--device is '", type, "'; use cpu or cuda");
}

}  // namespace

c10::Device open_device(const std::string& type) {
  const c10::DeviceType kind = parse(type);
  if (kind == c10::DeviceType::CPU) {
    return kind;
  }
  // Torch's kernels for CUDA are a library of their own, which a linker leaves out.
  TTRACE_CHECK(kind != c10::DeviceType::CUDA ||
                   dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_GLOBAL) != nullptr,
               UsageError,
               "--device cuda needs a CUDA build of PyTorch, but this program is linked with one "
               "that has no CUDA (",
               dlerror(),
               "); build it with -DTTRACE_TORCH_DIR=FOLDER of a CUDA build, or use --device cpu");
  TTRACE_CHECK(c10::impl::hasDeviceGuardImpl(kind) && at::isAccelerator(kind),
               UsageError,
               "--device is ",
               type,
               ", which this build of PyTorch does not have; use cpu or cuda");
  const auto* const driver = c10::impl::getDeviceGuardImpl(kind);
  TTRACE_CHECK(driver->deviceCount() > 0,
               UsageError,
               "--device ",
               type,
               " finds no such device on this machine; see whether nvidia-smi lists one that "
               "CUDA_VISIBLE_DEVICES does not hide, or use --device cpu");
  const c10::Device first(kind, 0);
  driver->setDevice(first);
  return first;
}

}  // namespace ttrace::reference
