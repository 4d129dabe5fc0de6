#include "trace/sums/statistics_dispatch.h"

#include "trace/base/instruction_set.h"

namespace ttrace {

std::vector<const StatisticsKernel*> available_kernels() {
  std::vector<const StatisticsKernel*> kernels{&kBaselineKernel};
  const InstructionSet best = best_instruction_set();
  if (best >= InstructionSet::kAvx2) {
    kernels.push_back(&kAvx2Kernel);
  }
  if (best >= InstructionSet::kAvx512) {
    kernels.push_back(&kAvx512Kernel);
  }
  return kernels;
}

}  // namespace ttrace
