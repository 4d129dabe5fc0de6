// Rearranges one logical tensor from one program's form to the other's: another order of
// dimensions, joined or split dimensions, several parts instead of one tensor.
//
// Errors are UsageErrors that say how the tensor contradicts the rename map; the caller knows which
// tensor and entry.
//
// Thread-safety: free functions without shared state.
#pragma once

#include "analysis/rename/rename_map.h"
#include "trace/merge/merge.h"

#include <ttrace/dims.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace ttrace {

// The tensor that has the dimensions `from`, as one of the dimensions `to`; see DimsPair.
[[nodiscard]] MergeResult rearranged(const MergeResult& tensor,
                                     const DimsSpec& from,
                                     const DimsSpec& to);

// The shape that rearranged() gives.
[[nodiscard]] std::vector<std::int64_t> rearranged_shape(const std::vector<std::int64_t>& shape,
                                                         const DimsSpec& from,
                                                         const DimsSpec& to);

// The position in `from` of every dimension of `to`; nothing if dimensions are joined or split.
[[nodiscard]] std::optional<std::vector<std::size_t>> permutation(const DimsSpec& from,
                                                                  const DimsSpec& to);

// The parts as one tensor, put together along `dim`. Numbers, which have no dimensions, must be
// equal, and stay one number.
[[nodiscard]] MergeResult fused(std::span<const MergeResult> parts,
                                const Fusion& fusion,
                                std::size_t dim);
// The opposite.
[[nodiscard]] std::vector<MergeResult> split(const MergeResult& tensor,
                                             const Fusion& fusion,
                                             std::size_t dim);

// A run of indices of a dimension that a part takes of the tensor it is a part of.
struct PartPiece {
  std::size_t part = 0;
  std::int64_t in_part = 0;  // first index
  std::int64_t extent = 0;
};

// The pieces of a dimension, from its first index to its last. Throws UsageError if the parts'
// sizes are not in the fusion's ratio or cannot be cut into its groups.
[[nodiscard]] std::vector<PartPiece> pieces_of(std::span<const std::int64_t> part_sizes,
                                               const Fusion& fusion);
// The parts' sizes of a dimension of this size. Throws UsageError as above.
[[nodiscard]] std::vector<std::int64_t> part_sizes(std::int64_t size, const Fusion& fusion);

}  // namespace ttrace
