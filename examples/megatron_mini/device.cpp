#include "device.h"

#include "error.h"

#include <ATen/DeviceAccelerator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/util/Exception.h>

#include <dlfcn.h>

namespace megatron_mini {

namespace {

c10::DeviceType parse(const std::string& type) {
  try {
    if (const c10::Device device(type); !device.has_index()) {
      return device.type();
    }
  } catch (const c10::Error&) {  // its message lists all types that torch ever had
  }
  fail<UsageError>("--device is `", type, "`; it must be cpu or cuda");
}

// Torch's kernels for CUDA are a library of their own, which a linker leaves out.
void load_cuda() {
  if (dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_GLOBAL) == nullptr) {
    fail<UsageError>(
        "--device cuda needs a CUDA build of PyTorch, but this program is linked with one that has "
        "no CUDA (",
        dlerror(),
        "); build it with -DTTRACE_TORCH_DIR=FOLDER of a CUDA build, or use --device cpu");
  }
}

}  // namespace

c10::Device open_device(const std::string& type, int local_rank) {
  const c10::DeviceType kind = parse(type);
  if (kind == c10::DeviceType::CPU) {
    return kind;
  }
  if (kind == c10::DeviceType::CUDA) {
    load_cuda();
  }
  require<UsageError>(c10::impl::hasDeviceGuardImpl(kind) && at::isAccelerator(kind),
                      "--device is `",
                      type,
                      "`, which this build of PyTorch does not have; it must be cpu or cuda");
  const auto* const driver = c10::impl::getDeviceGuardImpl(kind);
  const int count = driver->deviceCount();
  require<UsageError>(count > 0,
                      "--device ",
                      type,
                      " finds no such device on this machine; see whether nvidia-smi lists one "
                      "that CUDA_VISIBLE_DEVICES does not hide, or use --device cpu");
  const c10::Device device(kind, static_cast<c10::DeviceIndex>(local_rank % count));
  driver->setDevice(device);
  return device;
}

}  // namespace megatron_mini
