#include "hooks/base/cuda_functions.h"

#include <cstdint>
#include <dlfcn.h>

namespace ttrace {
namespace {

// A function of a library that the process has loaded, perhaps for one of its parts alone.
void* find_in(const char* library, const char* name) {
  if (void* const function = dlsym(RTLD_DEFAULT, name); function != nullptr) {
    return function;
  }
  void* const loaded = dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
  return loaded == nullptr ? nullptr : dlsym(loaded, name);
}

// aoti_torch_get_current_cuda_stream() of torch's C interface for compiled models: 0 is success.
using CurrentStream = std::int32_t (*)(std::int32_t device, void** stream);

// cuStreamIsCapturing() of the driver's API.
using IsCapturing = int (*)(void* stream, int* status);
constexpr int kNone = 0;  // CU_STREAM_CAPTURE_STATUS_NONE

}  // namespace

void* find_in_cuda_driver(const char* name) {
  return find_in("libcuda.so.1", name);
}

std::optional<void*> current_cuda_stream(int device) {
  static const auto function = reinterpret_cast<CurrentStream>(
      find_in("libtorch_cuda.so", "aoti_torch_get_current_cuda_stream"));
  void* stream = nullptr;
  if (function == nullptr || function(device, &stream) != 0) {
    return std::nullopt;
  }
  return stream;
}

bool current_cuda_stream_records(int device) {
  static const auto function =
      reinterpret_cast<IsCapturing>(find_in_cuda_driver("cuStreamIsCapturing"));
  const std::optional<void*> stream = current_cuda_stream(device);
  int status = kNone;
  return function != nullptr && stream && function(*stream, &status) == 0 && status != kNone;
}

}  // namespace ttrace
