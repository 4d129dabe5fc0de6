// Where the tokens of a micro-batch stand, for those parts of the model that have to know.
//
// Thread-safety: values.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace megatron_mini {

// s tokens of a sample on this context-parallel rank, b samples. On the device of the model, but
// for what masks of dropout are drawn from, which are drawn on the CPU.
struct TokenPlaces {
  at::Tensor positions;  // [s, b] i64: number of this rank's tokens within their documents
  at::Tensor documents;  // [tokens of all cp ranks, b] i64: number of each token's document within
                         // its sample; undefined where a sample is one document
  at::Tensor rows;       // [s] i64, on the CPU: number of this rank's tokens within their sample
  at::Tensor samples;    // [b] i64, on the CPU: number of the samples within their micro-batch
  std::int64_t all_samples = 0;  // of the micro-batch; a layer may have a part of them
  std::uint64_t draw = 0;        // what is random in this micro-batch follows from it
  at::Tensor tokens{};   // [s, b] i64: number of this rank's tokens within the micro-batch, s b + b
                         // before samples were permuted
  at::Tensor counted{};  // [s, b] bool: which of this rank's tokens count in the loss
  std::int64_t microbatch = 0;  // number of the micro-batch within the step, over all ranks
};

}  // namespace megatron_mini
