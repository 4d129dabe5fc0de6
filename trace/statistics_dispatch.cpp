#include "statistics_dispatch.h"

namespace ttrace {

static_assert(kKernelBlock == kStatisticsBlock);
static_assert(kKernelTypes == static_cast<int>(ElementType::kBool) + 1);

std::vector<const StatisticsKernel*> available_kernels() {
  std::vector<const StatisticsKernel*> kernels{&kBaselineKernel};
#ifdef TTRACE_X86_KERNELS
  if (__builtin_cpu_supports("avx2")) {
    kernels.push_back(&kAvx2Kernel);
  }
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
    kernels.push_back(&kAvx512Kernel);
  }
#endif
  return kernels;
}

}  // namespace ttrace
