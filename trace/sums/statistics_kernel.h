// The sums over one block of a pair of tensors, for each instruction set (instruction_set.h).
//
// Every set works in the same lanes and in the same order and rounds every product before it is
// added, so all give the same bits; wider registers only hold more of the lanes at a time.
//
// Thread-safety: immutable tables of free functions; call from any thread.
#pragma once

#include <cstdint>

namespace ttrace {

inline constexpr int kKernelTypes = 8;     // element types with a kernel: the first by number
inline constexpr int kKernelBlock = 1024;  // elements

// One block's figures, of the reference r, the candidate c and d = c - r. NaN and Inf are in the
// sums: the caller looks at them and does such a block again with care.
struct BlockFigures {
  double reference_squared;
  double candidate_squared;
  double product;
  double difference_squared;
  double difference;
  double max_difference;  // maxima leave NaN out
  double max_reference;
  std::int64_t different;
};

// Sums blocks of kKernelBlock elements each, at any alignment.
using SumBlock = BlockFigures (*)(const void* reference, const void* candidate);

struct StatisticsKernel {
  const char* name;
  SumBlock sum_block[kKernelTypes];  // both sides of the element type of that number
};

// The kernel that every processor of this architecture can run.
extern const StatisticsKernel kBaselineKernel;
// The processor may be unable to run these.
extern const StatisticsKernel kAvx2Kernel;
extern const StatisticsKernel kAvx512Kernel;

}  // namespace ttrace
