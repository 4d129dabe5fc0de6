// The tokens of a micro-batch, what they are to predict, and where they stand.
//
// Packed documents: each begins with the beginning token and counts its positions from 0; the token
// behind its last one is another document's, so that the last one does not count in the loss.
//
// Thread-safety: values and free functions without shared state.
#pragma once

#include "config.h"
#include "parallel.h"
#include "text_data.h"
#include "token_places.h"

#include <ATen/core/Tensor.h>

namespace megatron_mini {

struct Batch {
  at::Tensor tokens;     // [b, s] i64
  at::Tensor labels;     // [b, s] i64
  at::Tensor loss_mask;  // [b, s] bool: which tokens count in the loss
  TokenPlaces places;
};

// A whole micro-batch, on the CPU; `key.sample` is not looked at.
[[nodiscard]] Batch load_batch(const TextData& text, const DataConfig& data, SampleKey key);

// Its samples in another order: sample i becomes order[i].
[[nodiscard]] Batch reordered(const Batch& batch, const at::Tensor& order);

// The same, on the device of the model.
[[nodiscard]] Batch moved_to(c10::Device device, const Batch& batch);

// The tokens of a context-parallel rank; what all ranks have to know stays whole.
[[nodiscard]] Batch part_of_rank(const Batch& batch, const Group& cp);

}  // namespace megatron_mini
