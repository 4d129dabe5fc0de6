// The sums over one block of a pair of tensors, for each instruction set (instruction_set.h).
//
// Every set works in the same lanes and in the same order and rounds every product before it is
// added, so all give the same bits; wider registers only hold more of the lanes at a time.
//
// Thread-safety: immutable tables of free functions; call from any thread.
#pragma once

#include "trace/kernels/lane_sums.h"
#include "trace/kernels/pair_block.h"

namespace ttrace {

// Sums blocks of kSumBlock elements each, at any alignment.
using SumBlock = BlockFigures (*)(const void* reference, const void* candidate);

struct StatisticsKernel {
  const char* name;
  SumBlock sum_block[kDirectTypes];  // both sides of the element type of that number
};

// The kernel that every processor of this architecture can run.
extern const StatisticsKernel kBaselineKernel;
// The processor may be unable to run these.
extern const StatisticsKernel kAvx2Kernel;
extern const StatisticsKernel kAvx512Kernel;

}  // namespace ttrace
