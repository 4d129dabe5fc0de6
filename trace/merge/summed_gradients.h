// Gradients of parameters whose ranks hold addends of a sum that nobody declared.
//
// A program whose parallelism is code of its own may hold a weight on all ranks, use it on heads or
// positions of each rank's own, and add its gradients up after backward, however it likes. The
// records of the gradients before that guess that they are copies. The candidate's own main
// gradients decide: copies that disagree are addends of a sum over axes S where, for all of the
// step's micro-batches m,
//
//   || main_grad - w sum_m sum_S param_grad_m ||  <=  16 u w sum ||param_grad_m of a rank||
//
// with u the relative error of one rounding, w = 1 or, of a mean, 1 over the number of ranks that S
// adds up, and where the ranks' main gradients are equal. w is in the scale of the placement then.
// Nothing here looks at a reference: whether the sum is the right one is for the comparison to say.
//
// Thread-safety: a free function without shared state.
#pragma once

#include "trace/file/trace_reader.h"

#include <ttrace/tensor_id.h>

#include <string>
#include <vector>

namespace ttrace {

struct SummedGradient {
  TensorId id;
  std::string axes;      // "tp", "tp,cp"
  bool is_mean = false;  // the main gradient is their mean
};

// Sets the placements of such gradients in `trace`, and returns them, ascending.
std::vector<SummedGradient> place_summed_gradients(Trace& trace);

}  // namespace ttrace
