// What a pass that replaces values has put in the place of what a module was given.
//
// Modules within that module may be given the same tensor. Their inputs are recorded under the
// tensor that the program made, whose gradient is the sum over all its consumers, but hold the
// values that have replaced it: otherwise its error would count again in each of them.
//
// Thread-safety: one thread at a time; Capture holds its lock around every call.
#pragma once

#include "hooks/base/tensor_access.h"
#include "hooks/capture/microbatches.h"

#include <ATen/core/Tensor.h>

#include <vector>

namespace ttrace {

class ReplacedInputs {
 public:
  void remember(const at::Tensor& original,
                const at::Tensor& replacement,
                const MicrobatchPtr& microbatch);
  // What the tensor was replaced by the last time, without a graph; the tensor itself if it was not.
  [[nodiscard]] at::Tensor given_for(const at::Tensor& tensor,
                                     const MicrobatchPtr& microbatch) const;
  void forget(const MicrobatchPtr& microbatch);
  void clear() { replaced_.clear(); }

 private:
  struct Replaced {
    TensorIdentity original;
    at::Tensor values;
    MicrobatchPtr microbatch;
  };

  std::vector<Replaced> replaced_;
};

}  // namespace ttrace
