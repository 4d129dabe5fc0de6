#include "faulty_positions.h"

#include "context_parallel.h"

#include <ATen/ATen.h>

namespace megatron_mini {

namespace {

// Numbers of tokens within their documents if these were as long as the next multiple of `unit`:
// documents [s, b] -> [s, b]. A token behind such a beginning belongs to its document, wherever the
// true one begins.
at::Tensor positions_of_padded(const at::Tensor& documents, std::int64_t unit) {
  const at::Tensor rows = at::arange(documents.size(0));
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

at::Tensor rotary_positions(const TokenPlaces& places, const Group& cp, const Bugs& bugs) {
  const auto s = places.positions.size(0);
  const at::Tensor rows = at::arange(s);
  const at::Tensor own_rows = zigzag_rows(s * cp.size, cp.size, cp.rank);
  const auto in_all_samples = [&](const at::Tensor& positions) {
    return positions.unsqueeze(1).expand_as(places.positions);
  };
  if (bugs.on("positions-restart-on-ranks")) {
    return in_all_samples(rows);
  }
  if (bugs.on("zigzag-positions-contiguous")) {
    return in_all_samples(rows + s * cp.rank);
  }
  if (bugs.on("packed-positions-not-restarted")) {
    return in_all_samples(own_rows);
  }
  if (bugs.on("packed-positions-without-cp")) {
    return positions_of_padded(places.documents, 1).narrow(0, 0, s);
  }
  if (bugs.on("packed-lengths-of-padded-documents")) {
    return positions_of_padded(places.documents, std::int64_t{2} * cp.size)
        .index_select(0, own_rows);
  }
  return places.positions;
}

}  // namespace megatron_mini
