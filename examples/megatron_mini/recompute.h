// Recomputation: a part of the forward keeps its inputs only, and runs again inside backward.
//
// The first run is without gradients. In backward the part runs once more with them, on the kept
// inputs, and the incoming gradient goes backward through that run at once; parameters collect
// their gradients there. Both runs make the same calls, collectives included.
//
// Sources: Chen et al., "Training deep nets with sublinear memory cost" (2016), section 4;
// Megatron-LM, tensor_parallel/random.py, CheckpointFunction.
//
// Thread-safety: none; one training thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

namespace megatron_mini {

enum class RecomputedParts : std::uint8_t {
  kNone,
  kFull,       // whole layers, several consecutive ones as one part
  kSelective,  // the core of the attention
};

struct RecomputePlan {
  RecomputedParts parts = RecomputedParts::kNone;
  std::int64_t layers = 1;  // of a part of whole layers; the last one may have fewer
};

// May be called again after everything that surrounded it is gone, as long as the model lives.
using RecomputedPart = std::function<at::Tensor(const std::vector<at::Tensor>&)>;

// part(inputs), to be recomputed. Requires: one to three inputs, of which one requires a gradient
// wherever a parameter inside does.
[[nodiscard]] at::Tensor recompute(const std::vector<at::Tensor>& inputs, RecomputedPart part);

// Whether a part is being run again.
[[nodiscard]] bool is_recomputing();

}  // namespace megatron_mini
