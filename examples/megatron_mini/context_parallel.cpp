#include "context_parallel.h"

#include <ATen/ATen.h>

namespace megatron_mini {

at::Tensor zigzag_rows(std::int64_t sequence, int cp, int rank) {
  if (cp == 1) {
    return at::arange(sequence);
  }
  const std::int64_t chunk = sequence / (std::int64_t{2} * cp);
  const std::int64_t first = rank * chunk;
  const std::int64_t second = (std::int64_t{2} * cp - 1 - rank) * chunk;
  return at::cat({at::arange(first, first + chunk), at::arange(second, second + chunk)});
}

}  // namespace megatron_mini
