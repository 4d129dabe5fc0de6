#include "hooks/base/capture_mode.h"

#include <dlfcn.h>

namespace ttrace {
namespace {

// cuThreadExchangeStreamCaptureMode() of the driver's API: sets the thread's mode and returns the
// one before through its argument.
using Exchange = int (*)(int*);
constexpr int kRelaxed = 2;  // CU_STREAM_CAPTURE_MODE_RELAXED

// The driver, where the program has loaded it: we neither link nor load it.
Exchange find_exchange() {
  constexpr const char* kName = "cuThreadExchangeStreamCaptureMode";
  void* function = dlsym(RTLD_DEFAULT, kName);
  if (function == nullptr) {
    void* const driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    function = driver == nullptr ? nullptr : dlsym(driver, kName);
  }
  return reinterpret_cast<Exchange>(function);
}

void exchange(int& mode) {
  static const Exchange function = find_exchange();
  if (function != nullptr) {
    function(&mode);
  }
}

}  // namespace

RelaxedCaptureMode::RelaxedCaptureMode() : before_(kRelaxed) {
  exchange(before_);
}

RelaxedCaptureMode::~RelaxedCaptureMode() {
  exchange(before_);
}

}  // namespace ttrace
