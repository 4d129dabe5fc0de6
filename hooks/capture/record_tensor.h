// Records torch tensors, and builds the tensors that replace them.
//
// Thread-safety: one thread at a time; Capture holds its lock around every call.
#pragma once

#include "hooks/capture/recorder.h"

#include <ttrace/tensor_id.h>

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <optional>
#include <vector>

namespace ttrace {

// The values of a tensor that the recorder wants, or its type and shape where those are enough;
// with those of the other ranks that the process simulates. Requires: unreadable(tensor) is empty.
[[nodiscard]] Snapshot values_of(const at::Tensor& tensor, const Recorder& recorder);

// Records the values that the tensor has now; they stay on its device where the pass compares them
// there. A tensor that cannot be read becomes a note.
void record_tensor(Recorder& recorder,
                   const TensorId& id,
                   const at::Tensor& tensor,
                   Recorder::Options options);

// A copy of `tensor` that holds `bytes` and belongs to the graph: gradients go through it. Returns
// the tensor itself if there are no bytes, or if it lies on a device and holds these bytes already.
[[nodiscard]] at::Tensor replaced_tensor(const at::Tensor& tensor,
                                         const std::optional<std::vector<std::byte>>& bytes);

// The return value of a gradient hook: a tensor like `gradient` that holds `bytes`. Without bytes
// it is an undefined tensor, so that backward keeps `gradient`; so it is if the gradient lies on a
// device and holds these bytes already.
[[nodiscard]] at::Tensor replaced_gradient(const at::Tensor& gradient,
                                           const std::optional<std::vector<std::byte>>& bytes);

}  // namespace ttrace
