#include "hooks/base/capture_mode.h"

#include "hooks/base/cuda_functions.h"

namespace ttrace {
namespace {

// cuThreadExchangeStreamCaptureMode() of the driver's API: sets the thread's mode and returns the
// one before through its argument.
using Exchange = int (*)(int*);
constexpr int kRelaxed = 2;  // CU_STREAM_CAPTURE_MODE_RELAXED

void exchange(int& mode) {
  static const auto function =
      reinterpret_cast<Exchange>(find_in_cuda_driver("cuThreadExchangeStreamCaptureMode"));
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
