// All functions that run on the host and on a GPU alike: they decide every bit of a noise pass.
//
// A kernel's values follow from its arguments alone, never from how the work is shared out. The
// host runs them in tests and for devices whose memory it can read; nvcc compiles them into
// libttrace_cuda.so.
#pragma once

#include "trace/kernels/chunk_sums.h"
#include "trace/kernels/compare_pairs.h"
#include "trace/kernels/digest.h"
#include "trace/kernels/noise.h"
