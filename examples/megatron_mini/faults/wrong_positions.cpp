#include "wrong_positions.h"

#include "../context_parallel.h"

#include <ATen/ATen.h>

#include <cstdint>

namespace megatron_mini::faults {

namespace {

// Numbers of tokens within their documents if these were as long as the next multiple of `unit`:
// documents [s, b] -> [s, b]. A token behind such a beginning belongs to its document, wherever the
// true one begins.
at::Tensor positions_of_padded(const at::Tensor& documents, std::int64_t unit) {
  const at::Tensor rows = at::arange(documents.size(0), documents.options());
  at::Tensor positions = at::empty_like(documents);
  for (std::int64_t sample = 0; sample < documents.size(1); ++sample) {
    const at::Tensor lengths = documents.select(1, sample).contiguous().bincount();
    const at::Tensor padded = at::floor_divide(lengths + (unit - 1), unit) * unit;
    const at::Tensor starts = padded.cumsum(0) - padded;
    const at::Tensor document =
        at::searchsorted(starts, rows, /*out_int32=*/false, /*right=*/true) - 1;
    positions.select(1, sample).copy_(rows - starts.index_select(0, document));
  }
  return positions;
}

}  // namespace

at::Tensor positions_from_zero(const TokenPlaces& places, const Group& /*cp*/) {
  return at::arange(places.positions.size(0), places.positions.options());
}

at::Tensor positions_of_contiguous_parts(const TokenPlaces& places, const Group& cp) {
  return positions_from_zero(places, cp) + places.positions.size(0) * cp.rank;
}

at::Tensor positions_within_samples(const TokenPlaces& places, const Group& cp) {
  return zigzag_rows(
      places.positions.size(0) * cp.size, cp.size, cp.rank, places.positions.device());
}

at::Tensor positions_of_first_tokens(const TokenPlaces& places, const Group& /*cp*/) {
  return positions_of_padded(places.documents, 1).narrow(0, 0, places.positions.size(0));
}

at::Tensor positions_of_padded_documents(const TokenPlaces& places, const Group& cp) {
  return positions_of_padded(places.documents, std::int64_t{2} * cp.size)
      .index_select(0, positions_within_samples(places, cp));
}

}  // namespace megatron_mini::faults
