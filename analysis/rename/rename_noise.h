// Renames the measurements of noise passes: sums over parts add up, and slices of a tensor follow
// from those of its parts, or of its other arrangement, if they are sums of the same elements.
// Otherwise a row has no slices, as in tables of earlier versions.
//
// Thread-safety: free functions without shared state.
#pragma once

#include "analysis/rename/rename_map.h"
#include "trace/file/noise_table.h"

#include <ttrace/dims.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace ttrace {

// A row and the shape of its tensor.
struct ShapedNoise {
  NoiseRow row;
  std::vector<std::int64_t> shape;
};

// See rearranged() of rearrange.h; `shape` is that of the result.
[[nodiscard]] ShapedNoise rearranged_noise(const ShapedNoise& noise,
                                           const DimsSpec& from,
                                           const DimsSpec& to,
                                           std::vector<std::int64_t> shape);
// See fused() of rearrange.h.
[[nodiscard]] ShapedNoise fused_noise(std::span<const ShapedNoise> parts,
                                      const Fusion& fusion,
                                      std::size_t dim);
// See split() of rearrange.h. Returns nothing if the tensor moved and has no slices to tell its
// parts apart: vectors, and tables of earlier versions. The largest element of the tensor stands
// for that of every part.
[[nodiscard]] std::optional<std::vector<ShapedNoise>> split_noise(const ShapedNoise& tensor,
                                                                  const Fusion& fusion,
                                                                  std::size_t dim);

}  // namespace ttrace
