#include "context_parallel.h"

#include <ATen/ATen.h>

namespace megatron_mini {

at::Tensor zigzag_rows(std::int64_t sequence, int cp, int rank, c10::Device device) {
  const at::TensorOptions options = at::TensorOptions(device).dtype(at::kLong);
  if (cp == 1) {
    return at::arange(sequence, options);
  }
  const std::int64_t chunk = sequence / (std::int64_t{2} * cp);
  const std::int64_t first = rank * chunk;
  const std::int64_t second = (std::int64_t{2} * cp - 1 - rank) * chunk;
  return at::cat(
      {at::arange(first, first + chunk, options), at::arange(second, second + chunk, options)});
}

}  // namespace megatron_mini
