// Where a rank's local tensor lies in the logical (single-device) tensor.
//
// One algebra covers contiguous, strided (gated fc1) and zig-zag shards, index maps (permuted
// samples, rows that a router sent), padding, flat ranges of a sharded optimizer, replicas, partial
// sums and scale factors. A placement is a claim; merge() checks it.
#pragma once

#include <ttrace/export.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ttrace {

// Local indices [local, local + extent) are logical indices [logical, logical + extent).
struct TTRACE_API Segment {
  std::int64_t local = 0;
  std::int64_t logical = 0;
  std::int64_t extent = 0;

  bool operator==(const Segment&) const = default;
};

// One dimension. Local indices in no segment are padding. Segments are sorted by `local`.
struct TTRACE_API DimPlacement {
  std::int64_t local_size = 0;
  std::int64_t logical_size = 0;
  std::vector<Segment> segments;
  bool sparse = false;  // indices that no rank holds are no gap: rows that a router sent elsewhere

  bool operator==(const DimPlacement&) const = default;
};

// Elements [first, first + count) of a tensor in row-major order.
struct TTRACE_API FlatRange {
  std::int64_t first = 0;
  std::int64_t count = 0;

  bool operator==(const FlatRange&) const = default;
};

struct TTRACE_API Placement {
  std::vector<DimPlacement> dims;
  // The logical value is the sum of `partial_count` addends, of which this is number
  // `partial_index`. Records of one id with equal region and equal partial_index are replicas and
  // must agree.
  int partial_index = 0;
  int partial_count = 1;
  std::string partial_over;  // axes summed over, "tp" or "tp,dp"; for messages
  double scale = 1.0;        // the local value times `scale` is the logical value
  // The record's tensor is one-dimensional and holds these elements of the tensor that `dims`
  // place: a distributed optimizer cuts this rank's part of a parameter anywhere. Several ranks may
  // hold an element; then they must agree on it.
  std::optional<FlatRange> flat = {};

  bool operator==(const Placement&) const = default;

  // Of the record's own tensor.
  [[nodiscard]] std::vector<std::int64_t> local_shape() const;
  [[nodiscard]] std::vector<std::int64_t> logical_shape() const;
  // True where every local element is the logical element of the same index and nothing is summed.
  [[nodiscard]] bool is_whole() const;
};

// The placement of a tensor that every rank holds whole.
[[nodiscard]] TTRACE_API Placement whole(std::span<const std::int64_t> shape);

// Throws FormatError where segments overlap locally or logically, leave their dimension, a flat
// range leaves its tensor, a partial index lies outside its count, or several dimensions are
// sparse.
TTRACE_API void validate(const Placement& placement);

inline constexpr std::int64_t kPadding = -1;

// The dimension whose local index i is the logical one indices[i]; kPadding is none. Throws
// UsageError for an index beyond the size or a second time.
[[nodiscard]] TTRACE_API DimPlacement index_map(std::span<const std::int64_t> indices,
                                                std::int64_t logical_size);

// The same claim for samples that were permuted along `dim`: local index i holds sample order[i].
// Throws UsageError where `order` is no permutation of the dimension's local size, or the placement
// is a flat range.
[[nodiscard]] TTRACE_API Placement permute(Placement placement,
                                           std::size_t dim,
                                           std::span<const std::int64_t> order);

// Text form kept in the trace index, see docs/trace_format.md; round-trips.
[[nodiscard]] TTRACE_API std::string to_string(const Placement& placement);
// Throws FormatError.
[[nodiscard]] TTRACE_API Placement parse_placement(std::string_view text);

}  // namespace ttrace
