// Ranks that one process simulates: what each of them holds of a tensor.
//
// Torch's LocalTensor holds one plain tensor for every rank. The process records that of the first
// rank, which stands for the others: who declares its parts lets others find them by it.
//
// Thread-safety: free functions; call from any thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace ttrace {

// `parts` are plain tensors in the order of the ranks. They are kept until the first one is gone.
void declare_parts(std::vector<at::Tensor> parts);

// What the other ranks hold in place of `first`; none if nobody declared it, so that all hold the
// same.
[[nodiscard]] std::vector<at::Tensor> other_parts(const at::Tensor& first);

// The parts of a tensor that wraps those of all ranks; a plain tensor itself. Runs the wrapper's
// Python code.
[[nodiscard]] std::vector<at::Tensor> unwrapped_parts(const at::Tensor& tensor);

}  // namespace ttrace
