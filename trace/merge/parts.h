// The parts that the shards of one tensor make up, addend by addend.
//
// Thread-safety: values and free functions without shared state.
#pragma once

#include "trace/merge/copies.h"
#include "trace/merge/flat_join.h"
#include "trace/merge/shard.h"
#include "trace/place/coverage.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace ttrace {

// The copies of one region of one addend; that of the lowest rank first.
struct Part {
  Region region;
  std::vector<const Copy*> copies;
};

// Key: partial index.
using Addends = std::map<int, std::vector<Part>>;

[[nodiscard]] std::vector<int> ranks_of(std::span<const Copy* const> copies);
[[nodiscard]] std::vector<int> ranks_of(std::span<const Part> parts);

// "addend 1 of 2 over tp: ", or nothing where nothing is summed.
[[nodiscard]] std::string addend_prefix(int partial_index, const Placement& placement);

// Flat ranges of one local tensor are joined; all else is a copy as it is. Ordered by lowest rank.
[[nodiscard]] Copies copies_of(std::span<const Shard> shards);

// Copies that hold nothing but padding add no part. The result refers to `copies`.
[[nodiscard]] Addends group_by_region(std::span<const Shard> shards, const Copies& copies);

// The space that the parts of every addend must tile: the whole tensor, except that of a sparse
// dimension only the rows count that some addend holds.
[[nodiscard]] Region space_of(std::span<const std::int64_t> shape,
                              std::optional<std::size_t> sparse,
                              const Addends& addends);

}  // namespace ttrace
