// Wrong numbers of tokens, by which rotary embedding would turn a rank's queries and keys.
//
// s tokens of a sample on this rank, b samples. Thread-safety: pure functions.
#pragma once

#include "../collectives.h"
#include "../token_places.h"

#include <ATen/core/Tensor.h>

namespace megatron_mini::faults {

// [s] for all samples, or [s, b].
using Positions = at::Tensor (*)(const TokenPlaces& places, const Group& cp);

// Every rank counts its tokens from 0.
[[nodiscard]] at::Tensor positions_from_zero(const TokenPlaces& places, const Group& cp);
// As if ranks held consecutive parts of a sample.
[[nodiscard]] at::Tensor positions_of_contiguous_parts(const TokenPlaces& places, const Group& cp);
// Documents do not begin anew.
[[nodiscard]] at::Tensor positions_within_samples(const TokenPlaces& places, const Group& cp);
// Those of the sample's first s tokens, on every rank.
[[nodiscard]] at::Tensor positions_of_first_tokens(const TokenPlaces& places, const Group& cp);
// As if every document were as long as the next multiple of 2 cp.
[[nodiscard]] at::Tensor positions_of_padded_documents(const TokenPlaces& places, const Group& cp);

}  // namespace megatron_mini::faults
